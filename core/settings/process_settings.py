"""The settings that each process needs. A deployment hands each process these and no others.

A process that decodes what strangers send must not hold the keys to money and mail: code that an
upload smuggles into it finds in its environment what it was handed.
"""

from collections.abc import Collection

from core.queues import Queue
from core.settings import store_settings as stores
from core.settings.given_settings import GivenSettings, read_settings
from core.settings.product_settings import MediaSettings, Settings, load_settings

Names = frozenset[str]


def _of(*kinds: type[GivenSettings]) -> Names:
    return frozenset(name for kind in kinds for name in kind.model_fields)


def _beginning(*prefixes: str) -> Names:
    return frozenset(name for name in Settings.model_fields if name.startswith(prefixes))


# The API, the workers and the operator's commands.
_ALL = _of(stores.DatabaseSettings, stores.ObjectStorageSettings, stores.CacheSettings) | {
    *("public_url", "pages_url", "encryption_keys", "quota_free", "quota_paid")
}
_SIGNING = frozenset({"secret_keys"})
_WORKER = _ALL | {"ready_file", "alive_file", "worker_metrics_address", "worker_grace", "patience"}
_PAYMENTS = _beginning("stripe_", "payments_sandbox_")
_PHOTOS = _beginning("stock_photo_", "unsplash_", "openverse_")
_MODEL = _beginning("llm_")
# For exports, and for checks of the ledger: maintenance makes them, and operators do beside the
# API.
_READS = frozenset({"read_database_url"})
# The API sends no mail and asks no language model. It knows the sender's name, which no list may
# take.
_API = (
    _ALL
    | _SIGNING
    | _PAYMENTS
    | _PHOTOS
    | _READS
    | (_MODEL - {"llm_api_key", "llm_fallback"})
    | _beginning(
        "turnstile_", "hcaptcha_", "recaptcha_", "challenge_", "rate_limit_", "mail_limit_"
    )
    | {
        *("account_challenge", "mail_from", "require_second_factor", "api_docs", "deny_list"),
        *("hsts_subdomains", "media_base_url", "api_key_header", "trusted_proxies", "api_drain"),
        *("credits_per_usd", "currencies", "composer_price", "redirect_origins", "metrics_token"),
        *("security_contacts", "security_policy", "webhook_allowed_networks"),
        # To tell what is overdue.
        "retention",
    }
)
_OF_QUEUES: dict[Queue, Names] = {
    Queue.REQUEST: _SIGNING | _MODEL,
    Queue.PHOTOS: _SIGNING | _PHOTOS,
    Queue.MONEY: _SIGNING | _PAYMENTS,
    Queue.MAIL: _SIGNING | _beginning("mail_"),
    Queue.WEBHOOKS: _SIGNING | _beginning("webhook_"),
    Queue.EXPORT: _SIGNING | _READS,
    # It decodes what strangers send.
    Queue.MEDIA: frozenset(),
    Queue.BULK: _SIGNING | {"deny_list"},
    # Backups are read by the application's role, which may read every row.
    Queue.MAINTENANCE: _SIGNING | _READS | {"retention"} | _beginning("backup_"),
}

_OF_COMMANDS = {
    "serve": _API,
    "flower": _of(stores.FlowerSettings),
    "migrate": _of(stores.MigrationSettings),
    "bucket": _of(stores.BucketSettings),
}


def settings_of(command: str, queues: Collection[Queue] = ()) -> Names:
    """The names of the settings that `pressroom <command>` needs, a worker for these queues."""
    if command == "worker":
        return _WORKER.union(*(_OF_QUEUES[queue] for queue in queues))
    return _OF_COMMANDS[command]


def load_worker_settings(queues: Collection[Queue]) -> Settings:
    """Read the settings of a worker for these queues; raises ``SettingsError``."""
    return read_settings(MediaSettings) if set(queues) == {Queue.MEDIA} else load_settings()
