"""Builds the settings that send Pressroom's requests to the sandbox instead of real providers.

If the user has set any setting of a provider, the sandbox doesn't replace the provider. A real
provider's secret must never reach the sandbox. The sandbox's keys need no protection, because the
sandbox listens on the loopback address and has no secrets.
"""

from collections.abc import Mapping

from devstack.sandbox.stripe.objects import StripeKeys

CHALLENGES_PREFIX = "/challenges"
SITEVERIFY_PATHS = {
    "turnstile": "/turnstile/v0/siteverify",
    "hcaptcha": "/hcaptcha/siteverify",
    "recaptcha": "/recaptcha/api/siteverify",
}
# The host name that the sandbox reports for a solved challenge. ``make run`` serves Pressroom's
# pages on ``localhost``.
HOSTNAME = "localhost"

HOOKS_PREFIX = "/hooks"

SENDERS_PREFIX = "/senders"
_SNS_PREFIX = f"{SENDERS_PREFIX}/sns"

LLM_PREFIX = "/llm"
LLM_MODEL = "sandbox"
LLM_API_KEY = "sandbox-llm-key"

STRIPE_PREFIX = "/stripe"
WEBHOOK_PATH = "/webhooks/stripe"
_STRIPE_URL = "PRESSROOM_PAYMENTS_SANDBOX_URL"
_STRIPE_SECRET_KEY = "PRESSROOM_PAYMENTS_SANDBOX_SECRET_KEY"  # noqa: S105
_STRIPE_WEBHOOK_SECRET = "PRESSROOM_PAYMENTS_SANDBOX_WEBHOOK_SECRET"  # noqa: S105
# The settings that the sandbox's Stripe stand-in reads.
STRIPE_KEYS = frozenset({"payments_sandbox_secret_key", "payments_sandbox_webhook_secret"})

UNSPLASH_PREFIX = "/unsplash"
OPENVERSE_PREFIX = "/openverse"
UNSPLASH_ACCESS_KEY = "sandbox-unsplash-access-key"


RESEND_PREFIX = "/resend"
RESEND_API_KEY = "re_sandbox"
LISTMONK_PREFIX = "/listmonk"
LISTMONK_USER = "pressroom"
LISTMONK_TOKEN = "sandbox-listmonk-token"  # noqa: S105


def get_challenge_secret(provider: str) -> str:
    return f"sandbox-{provider}-secret"


def get_challenge_site_key(provider: str) -> str:
    return f"sandbox-{provider}-site-key"


def build_sandbox_settings(sandbox_url: str, user_settings: Mapping[str, str]) -> dict[str, str]:
    return {
        **build_challenge_settings(sandbox_url, user_settings),
        **build_payment_settings(sandbox_url, user_settings),
        **build_llm_settings(sandbox_url, user_settings),
        **build_stock_photo_settings(sandbox_url, user_settings),
        **build_sns_settings(sandbox_url, user_settings),
    }


def build_challenge_settings(sandbox_url: str, user_settings: Mapping[str, str]) -> dict[str, str]:
    chosen: dict[str, str] = {}
    for provider, path in SITEVERIFY_PATHS.items():
        name = f"PRESSROOM_{provider.upper()}"
        settings = {
            f"{name}_URL": f"{sandbox_url}{CHALLENGES_PREFIX}{path}",
            f"{name}_SECRET": get_challenge_secret(provider),
            f"{name}_SITE_KEY": get_challenge_site_key(provider),
        }
        chosen |= settings if user_settings.keys().isdisjoint(settings) else {}
    # Set the expected host name only if the sandbox replaces all challenge providers, because real
    # providers report other host names than the sandbox.
    if len(chosen) == 3 * len(SITEVERIFY_PATHS):
        chosen["PRESSROOM_CHALLENGE_HOSTNAMES"] = HOSTNAME
    if chosen:
        # Disable challenges on Pressroom's pages, because the sandbox has no challenge widget.
        chosen["PRESSROOM_ACCOUNT_CHALLENGE"] = "none"
    return chosen


def build_llm_settings(sandbox_url: str, user_settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings for the sandbox's language model if the user has chosen ``openai``.

    The result is empty if the user has set a language model's base URL or API key.
    """
    names_a_server = {"PRESSROOM_LLM_BASE_URL", "PRESSROOM_LLM_API_KEY"} & user_settings.keys()
    if user_settings.get("PRESSROOM_LLM_PROVIDER") != "openai" or names_a_server:
        return {}
    return {
        "PRESSROOM_LLM_BASE_URL": f"{sandbox_url}{LLM_PREFIX}/v1",
        "PRESSROOM_LLM_API_KEY": LLM_API_KEY,
        "PRESSROOM_LLM_MODEL": LLM_MODEL,
    }


def build_payment_settings(sandbox_url: str, user_settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings with new Stripe keys for the payment channel ``sandbox``."""
    new_keys = StripeKeys()
    settings = {
        _STRIPE_URL: f"{sandbox_url}{STRIPE_PREFIX}",
        _STRIPE_SECRET_KEY: new_keys.secret_key,
        _STRIPE_WEBHOOK_SECRET: new_keys.webhook_secret,
    }
    return settings if user_settings.keys().isdisjoint(settings) else {}


def set_stripe_keys(
    keys: StripeKeys, environment: Mapping[str, str], webhook_url: str | None
) -> None:
    """Copy the Stripe keys from the programs' environment into ``keys``."""
    keys.secret_key = environment.get(_STRIPE_SECRET_KEY) or keys.secret_key
    keys.webhook_secret = environment.get(_STRIPE_WEBHOOK_SECRET) or keys.webhook_secret
    keys.webhook_url = webhook_url


def build_stock_photo_settings(
    sandbox_url: str, user_settings: Mapping[str, str]
) -> dict[str, str]:
    """Return the sandbox settings for stock photos, with Unsplash as the default provider."""
    unsplash = {
        "PRESSROOM_UNSPLASH_BASE_URL": f"{sandbox_url}{UNSPLASH_PREFIX}",
        "PRESSROOM_UNSPLASH_ACCESS_KEY": UNSPLASH_ACCESS_KEY,
    }
    openverse = {"PRESSROOM_OPENVERSE_BASE_URL": f"{sandbox_url}{OPENVERSE_PREFIX}"}
    chosen = {"PRESSROOM_STOCK_PHOTO_PROVIDER": "unsplash"}
    for provider in (unsplash, openverse):
        if user_settings.keys().isdisjoint(provider):
            chosen |= provider
    return chosen


def build_sns_settings(sandbox_url: str, user_settings: Mapping[str, str]) -> dict[str, str]:
    settings = {"PRESSROOM_SNS_BASE_URL": f"{sandbox_url}{_SNS_PREFIX}"}
    return settings if user_settings.keys().isdisjoint(settings) else {}
