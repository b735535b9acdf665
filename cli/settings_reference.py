"""Prints a reference of all settings as Markdown.

The command ``python -m cli.settings_reference > docs/settings.md`` updates the committed reference.
"""

import sys
from collections.abc import Iterator

from cli.environment_file import read_setting_descriptions
from core.settings import Settings
from core.settings.given_settings import variable_of

HEAD = """# Settings

Written by `python -m cli.settings_reference`; don't edit. Settings are environment variables, read
at start. An empty variable counts as not set, except for the rate limits, the mail limits and the
quotas, which an empty value switches off. A process whose settings are wrong ends with code 2 and
names each wrong setting. [install.md](install.md#configure) explains them by subject.
"""
# Maps the heading of a group of settings to the prefixes of their names. The last group contains
# the settings without a listed prefix.
_GROUPS = {
    "Database": ("database_", "migration_database_", "read_database_"),
    "Redis": ("redis_", "broker_", "cache_"),
    "Object storage": ("s3_",),
    "URLs and keys": (
        *("public_url", "pages_url", "media_base_url", "secret_keys", "encryption_keys"),
        *("api_key_header", "trusted_proxies"),
    ),
    "Mail": ("mail_",),
    "Challenges": ("turnstile_", "hcaptcha_", "recaptcha_", "challenge_", "account_challenge"),
    "Credits and payments": (
        *("credits_", "currencies", "composer_price", "redirect_origins", "stripe_", "payments_"),
    ),
    "Webhooks": ("webhook_",),
    "Language model": ("llm_",),
    "Stock photos": ("stock_photo_", "unsplash_", "openverse_"),
    "Limits and quotas": ("rate_limit_", "quota_", "deny_list"),
    "Retention and backups": ("retention", "backup_"),
    "Flower": ("flower_",),
    "Processes": ("",),
}


def build_page() -> str:
    texts = read_setting_descriptions()
    remaining_names = list(Settings.model_fields)
    lines = [HEAD]
    for heading, prefixes in _GROUPS.items():
        names = [name for name in remaining_names if name.startswith(prefixes)]
        remaining_names = [name for name in remaining_names if name not in names]
        lines += [f"## {heading}\n", "| setting | default | meaning |\n|---|---|---|"]
        lines += [*_build_rows(names, texts), ""]
    return "\n".join(lines)


def _build_rows(names: list[str], texts: dict[str, str]) -> Iterator[str]:
    for name in names:
        field = Settings.model_fields[name]
        default = "required" if field.is_required() else ""
        if not field.is_required() and field.default not in (None, ()):
            default = f"`{field.default}`"
        yield f"| `{variable_of(name)}` | {default} | {texts[name]} |"


if __name__ == "__main__":
    sys.stdout.write(build_page())
