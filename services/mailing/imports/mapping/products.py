"""The product whose export a file is, by its header, and the words that it uses differently."""

from collections.abc import Set as AbstractSet

from services.mailing.imports.mapping.header_words import PRODUCTS, STATUSES, key
from services.mailing.imports.mapping.rows import SuppressionStatus

_KIT_STATES = {"active", "inactive", "cancelled", "canceled", "bounced", "complained", ""}
_KIT_STATES |= {"confirmed", "unconfirmed", "cold"}

# Columns of our own exports that say nothing of a person.
OWN_COLUMNS = frozenset(
    map(key, ("id", "user id", "source", "import id", "consent claimed by", "consent list id"))
)

# These products have a fixed list of states: an unknown word may mean that the person left.
_OWN_MEANING: dict[str, dict[str, SuppressionStatus | None]] = {
    "beehiiv": {"inactive": SuppressionStatus.UNSUBSCRIBED},
    "kit": dict.fromkeys(("cancelled", "canceled"), SuppressionStatus.UNSUBSCRIBED),
    "buttondown": {"paused": SuppressionStatus.WANTED, "blocked": SuppressionStatus.COMPLAINED},
}


class UnknownStatus(Exception):
    """A status column of a product has an unknown word."""


def detect_product(keys: AbstractSet[str]) -> str | None:
    """The product that writes columns with these keys."""
    return next((product for product, needed in PRODUCTS if needed <= keys), None)


def are_kit_states(cells: AbstractSet[str]) -> bool:
    """Whether a column named "state" holds Kit's status, not a part of a country."""
    return {key(cell) for cell in cells} <= _KIT_STATES


def suppression_status(product: str | None, word: str) -> SuppressionStatus | None:
    """The status that ``word`` means; ``None``: not subscribed, and not opted out."""
    found = key(word)
    own = _OWN_MEANING.get(product or "", {})
    if found in own:
        return own[found]
    if own and found and found not in STATUSES:
        raise UnknownStatus(word)
    return STATUSES.get(found, SuppressionStatus.WANTED)
