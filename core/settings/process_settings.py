"""The names of the settings that each kind of process needs.

The worker that decodes uploads must not have secrets for payments and mail, because malicious code
in an upload could read the environment.
"""

from collections.abc import Collection

from core.queues import Queue
from core.settings import store_settings as stores
from core.settings.given_settings import GivenSettings, read_settings
from core.settings.product_settings import MediaSettings, Settings, load_settings

SettingNames = frozenset[str]

_SIGNING = frozenset({"secret_keys"})
# The workers for exports and for maintenance read from the database replica. The API has the
# replica's URL, because operators can run the ledger check with the API's settings.
_REPLICA = frozenset({"read_database_url"})


def _names_in(*kinds: type[GivenSettings]) -> SettingNames:
    return frozenset(name for kind in kinds for name in kind.model_fields)


def _names_with(*prefixes: str) -> SettingNames:
    return frozenset(name for name in Settings.model_fields if name.startswith(prefixes))


# The settings that the API and all workers need.
_SHARED = _names_in(stores.DatabaseSettings, stores.ObjectStorageSettings, stores.CacheSettings) | {
    "public_url",
    "pages_url",
    "encryption_keys",
    "quota_free",
    "quota_paid",
}
_WORKER = _SHARED | {
    "ready_file",
    "alive_file",
    "worker_metrics_address",
    "worker_grace",
    "patience",
}
_PAYMENTS = _names_with("stripe_", "payments_sandbox_")
_PHOTOS = _names_with("stock_photo_", "unsplash_", "openverse_")
_MODEL = _names_with("llm_")
# The API needs neither the mail server's password nor the language model's key, because only
# workers use them. The API needs the mail sender's name, because no list may have the same name.
_API = (
    _SHARED
    | _SIGNING
    | _PAYMENTS
    | _PHOTOS
    | _REPLICA
    | (_MODEL - {"llm_api_key", "llm_fallback"})
    | _names_with(
        "turnstile_", "hcaptcha_", "recaptcha_", "challenge_", "rate_limit_", "mail_limit_"
    )
    | {
        "account_challenge",
        "mail_from",
        "require_second_factor",
        "owners_send",
        "api_docs",
        "deny_list",
        "hsts_subdomains",
        "media_base_url",
        "api_key_header",
        "trusted_proxies",
        "api_drain",
        "credits_per_usd",
        "currencies",
        "composer_price",
        "redirect_origins",
        "metrics_token",
        "security_contacts",
        "security_policy",
        "webhook_allowed_networks",
        "docs_url",
        "plan_contact",
        "sns_base_url",
        # The API needs the retention periods, because the operators' overview counts expired rows.
        "retention",
    }
)
_SETTINGS_BY_QUEUE: dict[Queue, SettingNames] = {
    Queue.REQUEST: _SIGNING | _MODEL,
    Queue.PHOTOS: _SIGNING | _PHOTOS,
    Queue.MONEY: _SIGNING | _PAYMENTS,
    Queue.MAIL: _SIGNING | _names_with("mail_"),
    Queue.WEBHOOKS: _SIGNING | _names_with("webhook_"),
    Queue.EXPORT: _SIGNING | _REPLICA,
    # The media worker receives as few secrets as possible, because it decodes untrusted uploads.
    Queue.MEDIA: frozenset(),
    Queue.BULK: _SIGNING | {"deny_list"},
    # Maintenance needs no separate database login for backups, because the application's database
    # role may read every row.
    Queue.MAINTENANCE: _SIGNING
    | _REPLICA
    | {"retention", "sns_base_url", "operator_mail"}
    | _names_with("backup_"),
}
_SETTINGS_BY_COMMAND = {
    "serve": _API,
    "flower": _names_in(stores.FlowerSettings),
    "migrate": _names_in(stores.MigrationSettings),
    "bucket": _names_in(stores.BucketSettings),
}


def list_settings(command: str, queues: Collection[Queue] = ()) -> SettingNames:
    if command == "worker":
        return _WORKER.union(*(_SETTINGS_BY_QUEUE[queue] for queue in queues))
    return _SETTINGS_BY_COMMAND[command]


def load_worker_settings(queues: Collection[Queue]) -> Settings:
    return read_settings(MediaSettings) if set(queues) == {Queue.MEDIA} else load_settings()
