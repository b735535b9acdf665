"""The feed's events in words, and where each leads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from api.console.assets import CONSOLE_PATH
from services.feed.catalogue import CATALOGUE, FeedEventType, SubjectKind

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
    _TYPE.BULK_ENDED: "An act on many members, or an undo, ended",
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
    _TYPE.GRANT_CREATED: "A program got access",
    _TYPE.GRANT_ENDED: "A program lost its access",
}
_GROUPS = (
    ("Members", (SubjectKind.SUBSCRIPTION,)),
    ("Imports, exports and acts", (SubjectKind.IMPORT, SubjectKind.EXPORT)),
    ("Images", (SubjectKind.ATTACHMENT,)),
    ("Credits", (SubjectKind.ORDER, SubjectKind.CREDIT_ACCOUNT)),
    ("Keys and programs", (SubjectKind.KEY, SubjectKind.GRANT)),
)


def type_groups() -> Sequence[tuple[str, Sequence[tuple[FeedEventType, str]]]]:
    """The types by what they are about, each in words."""
    return [
        (heading, [(each, words) for each, words in WORDS.items() if _subject(each) in kinds])
        for heading, kinds in _GROUPS
    ]


def type_choices() -> Sequence[tuple[str, str]]:
    return [("", "All kinds"), *((str(each), words) for each, words in WORDS.items())]


@dataclass(frozen=True)
class ShownEvent:
    type: str
    at: datetime
    words: str
    # What it is about, as far as that is still known, and its page.
    about: str
    path: str | None

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> Self:
        """From an event as the feed shows it."""
        kind = FeedEventType(event["type"])
        about, path = _about(_subject(kind), event)
        at = datetime.fromisoformat(event["occurred_at"])
        return cls(str(kind), at, WORDS[kind], about, path)


def _subject(kind: FeedEventType) -> SubjectKind:
    return CATALOGUE[kind].subject


def _about(kind: SubjectKind, event: Mapping[str, Any]) -> tuple[str, str | None]:
    data, subject = event["data"], event["subject"]
    number = None if subject is None else subject["id"]
    if kind is SubjectKind.SUBSCRIPTION:
        path = f"{CONSOLE_PATH}/lists/{event['list_id']}/members/{data['user_id']}"
        return data["email"] or "", path if data["email"] else None
    if kind is SubjectKind.ATTACHMENT:
        gone = event["type"] == FeedEventType.ATTACHMENT_DELETED
        return data["hash_id"], None if gone else f"{CONSOLE_PATH}/images/{data['hash_id']}"
    if number is None:
        return "", None
    folder = _FOLDERS.get(kind)
    return f"{kind} {number}", None if folder is None else f"{CONSOLE_PATH}/{folder}/{number}"


_FOLDERS = {
    SubjectKind.IMPORT: "imports",
    SubjectKind.EXPORT: "exports",
    SubjectKind.ORDER: "credits/orders",
}
