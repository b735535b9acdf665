"""The events of the feed, and their types, in words."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from api.console.assets import CONSOLE_PATH
from services.access.caller import Caller
from services.feed import reading
from services.feed.catalogue import CATALOGUE, FeedEventType, SubjectKind, visible_types
from services.webhooks.deliveries import TEST_EVENT_TYPE
from storage.unit_of_work import UnitOfWork

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
_SUBJECTS = {
    "Members": (SubjectKind.SUBSCRIPTION,),
    "Imports, exports and bulk actions": (SubjectKind.IMPORT, SubjectKind.EXPORT),
    "Images": (SubjectKind.ATTACHMENT,),
    "Credits": (SubjectKind.ORDER, SubjectKind.CREDIT_ACCOUNT),
    "Keys and apps": (SubjectKind.KEY, SubjectKind.GRANT),
}
# The types of events by their subjects, each in words.
TYPE_GROUPS = [
    (heading, [(each, words) for each, words in WORDS.items() if CATALOGUE[each].subject in kinds])
    for heading, kinds in _SUBJECTS.items()
]


def type_words(kind: str) -> str:
    if kind == TEST_EVENT_TYPE:
        return "A test"
    # A type that a later release wrote is known by its name alone.
    return WORDS[FeedEventType(kind)] if kind in [*FeedEventType] else kind


_FOLDERS = {
    SubjectKind.IMPORT: "imports",
    SubjectKind.EXPORT: "exports",
    SubjectKind.ORDER: "credits/orders",
}


@dataclass(frozen=True)
class ShownEvent:
    """An event of the feed, or several alike that followed one another.

    Attributes:
        at: when the newest of them happened.
        about: its subject, as far as that is still known.
        path: the page of its subject.
        times: how many they are.
    """

    type: str
    at: datetime
    words: str
    about: str
    path: str | None
    times: int = 1


def newest_events(
    uow: UnitOfWork, caller: Caller, *, only: Collection[FeedEventType], limit: int
) -> list[ShownEvent]:
    """Return the caller's newest events, of these types or of all, with those alike as one."""
    types = visible_types(caller.scopes, unrestricted=caller.unrestricted, only=only)
    found = reading.newest(uow.session, caller.user_id, types=types, limit=limit)
    return _folded(_shown_event(each) for each in reading.show(uow.session, found))


def _folded(events: Iterable[ShownEvent]) -> list[ShownEvent]:
    """Return one event for each run of events of the same kind, subject and day (UTC)."""
    found: list[ShownEvent] = []
    for each in events:
        last = found[-1] if found else None
        if (
            last is not None
            and last.at.date() == each.at.date()
            and ((last.type, last.about, last.path) == (each.type, each.about, each.path))
        ):
            found[-1] = replace(last, times=last.times + 1)
        else:
            found.append(each)
    return found


def _shown_event(event: Mapping[str, Any]) -> ShownEvent:
    kind, data, subject = FeedEventType(event["type"]), event["data"], event["subject"]
    about, path = "", None
    match CATALOGUE[kind].subject:
        case SubjectKind.SUBSCRIPTION:
            about = data["email"] or ""
            path = f"lists/{event['list_id']}/members/{data['user_id']}" if about else None
        case SubjectKind.ATTACHMENT:
            about = data["hash_id"]
            path = None if kind is FeedEventType.ATTACHMENT_DELETED else f"images/{about}"
        case other if subject is not None:
            about = f"{other} {subject['id']}"
            path = f"{_FOLDERS[other]}/{subject['id']}" if other in _FOLDERS else None
    at = datetime.fromisoformat(event["occurred_at"])
    return ShownEvent(kind, at, WORDS[kind], about, path and f"{CONSOLE_PATH}/{path}")
