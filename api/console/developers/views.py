"""The types of events in words."""

from collections.abc import Sequence

from services.feed.catalogue import CATALOGUE, FeedEventType, SubjectKind
from services.webhooks.deliveries import TEST_TYPE

_TYPE = FeedEventType
WORDS = {
    _TYPE.SUBSCRIPTION_CREATED: "A person subscribed",
    _TYPE.SUBSCRIPTION_CONFIRMED: "A person confirmed",
    _TYPE.SUBSCRIPTION_LEFT: "A person left",
    _TYPE.SUBSCRIPTION_EMAIL_OFF: "Mail was switched off",
    _TYPE.SUBSCRIPTION_EMAIL_ON: "Mail was switched on",
    _TYPE.SUBSCRIPTION_REMOVED: "A member was removed",
    _TYPE.SUBSCRIPTION_TRANSFERRED: "A member was moved",
    _TYPE.SUBSCRIPTION_CHANGED: "A member was changed",
    _TYPE.IMPORT_ENDED: "An import or a dry run ended",
    _TYPE.EXPORT_ENDED: "An export ended",
    _TYPE.BULK_ENDED: "A bulk action, or its undo, ended",
    _TYPE.ATTACHMENT_READY: "An image is ready",
    _TYPE.ATTACHMENT_FAILED: "An image could not be converted",
    _TYPE.ATTACHMENT_DELETED: "An image was deleted",
    _TYPE.ORDER_PAID: "An order was paid",
    _TYPE.ORDER_REFUNDED: "An order was refunded",
    _TYPE.ORDER_DISPUTED: "An order is disputed",
    _TYPE.ORDER_REVIEW: "An order is looked at by the operator",
    _TYPE.CREDITS_LOW: "Credits run low",
    _TYPE.KEY_CREATED: "An API key was made",
    _TYPE.KEY_ENDED: "An API key was ended",
    _TYPE.GRANT_CREATED: "An app got access",
    _TYPE.GRANT_ENDED: "An app lost its access",
}
_GROUPS = (
    ("Members", (SubjectKind.SUBSCRIPTION,)),
    ("Imports, exports and bulk actions", (SubjectKind.IMPORT, SubjectKind.EXPORT)),
    ("Images", (SubjectKind.ATTACHMENT,)),
    ("Credits", (SubjectKind.ORDER, SubjectKind.CREDIT_ACCOUNT)),
    ("Keys and apps", (SubjectKind.KEY, SubjectKind.GRANT)),
)


def type_groups() -> Sequence[tuple[str, Sequence[tuple[FeedEventType, str]]]]:
    """Return the types of events by their subjects, each in words."""
    return [
        (
            heading,
            [(each, words) for each, words in WORDS.items() if CATALOGUE[each].subject in kinds],
        )
        for heading, kinds in _GROUPS
    ]


def type_words(kind: str) -> str:
    if kind == TEST_TYPE:
        return "A test"
    # A type that a later release wrote is known by its name alone.
    return WORDS[FeedEventType(kind)] if kind in [*FeedEventType] else kind
