"""The payments' part of the sandbox, as the settings name it."""

from collections.abc import Mapping

from devstack.sandbox.stripe.keys import StripeKeys

SANDBOX_PREFIX = "/stripe"
WEBHOOK_PATH = "/webhooks/stripe"

_URL = "PRESSROOM_PAYMENTS_SANDBOX_URL"
_SECRET_KEY = "PRESSROOM_PAYMENTS_SANDBOX_SECRET_KEY"  # noqa: S105
_WEBHOOK_SECRET = "PRESSROOM_PAYMENTS_SANDBOX_WEBHOOK_SECRET"  # noqa: S105


def sandbox_settings(sandbox_url: str, own: Mapping[str, str]) -> dict[str, str]:
    """Settings that offer the channel `sandbox`, with keys drawn anew.

    It stands beside a real account that the user's `own` settings may name. Of settings for the
    sandbox itself that are theirs nothing is touched.
    """
    drawn = StripeKeys()
    trio = {
        _URL: f"{sandbox_url}{SANDBOX_PREFIX}",
        _SECRET_KEY: drawn.secret_key,
        _WEBHOOK_SECRET: drawn.webhook_secret,
    }
    return trio if own.keys().isdisjoint(trio) else {}


def give_keys(keys: StripeKeys, environment: Mapping[str, str], webhook_url: str | None) -> None:
    """Let the sandbox expect what the programs beside it were given."""
    keys.secret_key = environment.get(_SECRET_KEY) or keys.secret_key
    keys.webhook_secret = environment.get(_WEBHOOK_SECRET) or keys.webhook_secret
    keys.webhook_url = webhook_url
