"""The product whose export a file is, by its header, and the words that it uses differently."""

from collections.abc import Set as AbstractSet

from services.mailing.imports.mapping.header_words import STATUS_WORDS, key
from services.mailing.imports.mapping.rows import SuppressionStatus

# Sets of columns that mark a product's export. The first product with a complete set wins.
_SIGNS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("pressroom", ("paid_expiry,email_enabled",)),
    ("mailchimp", ("member_rating", "leid,euid", "optin_time,confirm_time")),
    ("ghost", ("subscribed_to_emails", "complimentary_plan")),
    ("substack", ("active_subscription", "email_disabled", "stripe_connected_customer_id")),
    ("buttondown", ("subscriber_type", "type,creation_date", "type,email_address,metadata")),
    (
        "beehiiv",
        (
            "status,free tier",
            "status,premium tier",
            "status,tier,created_at",
            "status,subscription_tier",
            "status,utm_source,utm_medium,utm_campaign,referring_site",
        ),
    ),
    ("kit", ("first_name,email,state,created_at", "first_name,email,status,created_at")),
    ("kit", ("first_name,email_address,state", "first name,email,state")),
)
_NEEDED = [
    (product, frozenset(key(name) for name in names.split(",")))
    for product, signs in _SIGNS
    for names in signs
]
_KIT_STATES = frozenset({"active", "inactive", "cancelled", "canceled", "bounced", "complained"})
_KIT_STATES |= {"confirmed", "unconfirmed", "cold", ""}

_OWN_MEANING: dict[str, dict[str, SuppressionStatus | None]] = {
    "beehiiv": {"inactive": SuppressionStatus.UNSUBSCRIBED},
    "kit": dict.fromkeys(("cancelled", "canceled"), SuppressionStatus.UNSUBSCRIBED),
    "buttondown": {"paused": SuppressionStatus.WANTED, "blocked": SuppressionStatus.COMPLAINED},
}
# These products have a fixed list of states: an unknown word may mean that the person left.
_CLOSED = frozenset({"beehiiv", "buttondown", "kit"})


class UnknownStatus(Exception):
    """A status column of a product has an unknown word."""


def detect_product(keys: AbstractSet[str]) -> str | None:
    """The product that writes columns with these keys."""
    return next((product for product, needed in _NEEDED if needed <= keys), None)


def are_kit_states(cells: AbstractSet[str]) -> bool:
    """Whether a column named "state" holds Kit's status, not a part of a country."""
    return {key(cell) for cell in cells} <= _KIT_STATES


def suppression_status(product: str | None, word: str) -> SuppressionStatus | None:
    """The status that ``word`` means; ``None``: not subscribed, and not opted out."""
    found = key(word)
    if product in _OWN_MEANING and found in _OWN_MEANING[product]:
        return _OWN_MEANING[product][found]
    if found in STATUS_WORDS:
        return STATUS_WORDS[found]
    if product in _CLOSED and found:
        raise UnknownStatus(word)
    return SuppressionStatus.WANTED
