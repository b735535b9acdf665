"""Describes feed events and their types for pages of the console.

Events that aren't ``EventView`` objects have the JSON format of the API.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby
from typing import Any

import orjson

from api.console.assets import CONSOLE_PATH
from api.console.members.views import ATTRIBUTE_LABELS
from core.ids import AccountId
from models import SubscriptionStatus
from services.access.caller import Caller
from services.access.event_types import list_visible_types
from services.feed import reading, record_names
from services.feed.catalogue import CATALOGUE, FeedEventType, SubjectKind
from services.feed.reading import FeedPosition
from services.feed.record_names import RecordId
from services.webhooks.deliveries import TEST_EVENT_TYPE
from storage.unit_of_work import UnitOfWork

_TYPE = FeedEventType
# Maps each type of feed event to a short sentence.
TYPE_LABELS = {
    _TYPE.SUBSCRIPTION_CREATED: "Someone signed up",
    _TYPE.SUBSCRIPTION_CONFIRMED: "Someone confirmed a subscription",
    _TYPE.SUBSCRIPTION_LEFT: "A member unsubscribed",
    _TYPE.SUBSCRIPTION_EMAIL_OFF: "Mail to a member was turned off",
    _TYPE.SUBSCRIPTION_EMAIL_ON: "Mail to a member was turned on",
    _TYPE.SUBSCRIPTION_REMOVED: "A member was removed",
    _TYPE.SUBSCRIPTION_TRANSFERRED: "A member was moved",
    _TYPE.SUBSCRIPTION_CHANGED: "A member was changed",
    _TYPE.SEGMENT_ENTERED: "A member entered a segment",
    _TYPE.SEGMENT_LEFT: "A member left a segment",
    _TYPE.SEGMENT_MANY: "Many members entered or left a segment",
    _TYPE.IMPORT_ENDED: "An import or preview finished",
    _TYPE.EXPORT_ENDED: "An export finished",
    _TYPE.BULK_ENDED: "A bulk action or undo finished",
    _TYPE.ATTACHMENT_READY: "An image is ready",
    _TYPE.ATTACHMENT_FAILED: "An image could not be converted",
    _TYPE.ATTACHMENT_DELETED: "An image was deleted",
    _TYPE.ORDER_PAID: "An order was paid",
    _TYPE.ORDER_REFUNDED: "An order was refunded",
    _TYPE.ORDER_DISPUTED: "An order is disputed",
    _TYPE.ORDER_REVIEW: "An order is under review",
    _TYPE.CREDITS_LOW: "The credit balance is low",
    _TYPE.KEY_CREATED: "An API key was created",
    _TYPE.KEY_ENDED: "An API key was revoked",
    _TYPE.GRANT_CREATED: "An app was granted access",
    _TYPE.GRANT_ENDED: "An app lost access",
    _TYPE.SENDER_FAILING: "A sender is failing",
    _TYPE.SENDER_RECOVERED: "A sender works again",
    _TYPE.MAILING_ALARM: "A mailing had many bounces or complaints",
}
# The subject of an event is the record that the event is about. ``_NAME_FIELDS`` maps each kind of
# subject to the event's field that contains the subject's id. The module ``record_names`` uses this
# id to find the subject's name.
_NAME_FIELDS = {
    SubjectKind.KEY: "key_id",
    SubjectKind.GRANT: "grant_id",
    SubjectKind.SENDER: "sender_id",
    SubjectKind.IMPORT: "import_id",
}
# More consecutive events than this, about different members, become one line.
_MAX_SINGLE_EVENTS = 3
_NO_NAMES: Mapping[RecordId, str] = {}
_SUBJECTS_BY_HEADING = {
    "Members": (SubjectKind.SUBSCRIPTION, SubjectKind.SEGMENT),
    "Imports, exports and bulk actions": (SubjectKind.IMPORT, SubjectKind.EXPORT),
    "Images": (SubjectKind.ATTACHMENT,),
    "Credits": (SubjectKind.ORDER, SubjectKind.CREDIT_ACCOUNT),
    "Keys and apps": (SubjectKind.KEY, SubjectKind.GRANT),
    "Senders": (SubjectKind.SENDER,),
}
# Maps the kind of an event's subject to the path of its console page.
_PATHS_BY_SUBJECT = {
    SubjectKind.IMPORT: "imports",
    SubjectKind.EXPORT: "exports",
    SubjectKind.ORDER: "credits/orders",
    SubjectKind.SENDER: "developers/senders",
}
# The types of feed events and their labels, grouped under headings such as "Members".
TYPE_GROUPS = [
    (
        heading,
        [(each, words) for each, words in TYPE_LABELS.items() if CATALOGUE[each].subject in kinds],
    )
    for heading, kinds in _SUBJECTS_BY_HEADING.items()
]


def describe_type(kind: str) -> str:
    if kind == TEST_EVENT_TYPE:
        return "Test event"
    # A newer release may have recorded a type that this release doesn't know.
    return TYPE_LABELS[FeedEventType(kind)] if kind in [*FeedEventType] else kind


@dataclass(frozen=True)
class EventView:
    """A line that describes a feed event, or several merged events.

    Attributes:
        at, json: the time and the API's JSON of the newest merged event.
        path: the path of the page about the event's subject, or ``None`` if there is no such page.
        times: the number of merged events. 1 for a single event, or if ``others`` isn't 0.
        others: the number of other members with merged events.
        changed: what the events changed, such as "name".
        list_title: the title of the list of the member that the event is about, or empty.
        is_pending: whether a person signed up who must still confirm the subscription.
    """

    type: str
    at: datetime
    words: str
    about: str
    path: str | None
    json: str
    times: int = 1
    others: int = 0
    changed: tuple[str, ...] = ()
    list_title: str = ""
    is_pending: bool = False


@dataclass(frozen=True)
class EventPage:
    """A page of feed events, newest first."""

    events: list[EventView]
    next_cursor: str | None


def list_newest_events(
    uow: UnitOfWork,
    caller: Caller,
    *,
    only: Collection[FeedEventType],
    limit: int,
    list_id: int | None = None,
    cursor: str | None = None,
) -> EventPage:
    """Return the newest feed events of the caller, and merge equal consecutive events.

    ``only``: the types of the returned events, or empty for all types.
    ``list_id``: the list of the returned events, or ``None`` for all events.
    """
    types = list_visible_types(caller, only=only)
    before = None if cursor is None else FeedPosition.of_cursor(cursor)
    entries = reading.list_newest_events(
        uow.session, caller.account_id, types=types, list_id=list_id, limit=limit, before=before
    )
    events = reading.render_events(uow.session, entries)
    names = find_subject_names(uow, caller.account_id, events)
    is_full = len(entries) == limit
    return EventPage(
        _merge_equal_events(_build_view(each, names) for each in events),
        FeedPosition.of_event(entries[-1]).cursor if is_full else None,
    )


def find_subject_names(
    uow: UnitOfWork, account_id: AccountId, events: Iterable[Mapping[str, Any]]
) -> dict[RecordId, str]:
    """Return the names of the objects that events are about, such as API keys and images."""
    record_ids: list[RecordId] = []
    for event in events:
        if event["type"] not in [*FeedEventType]:
            continue
        kind = CATALOGUE[FeedEventType(event["type"])].subject
        if kind is SubjectKind.ATTACHMENT:
            record_ids.append(("hash_id", event["data"]["hash_id"]))
        elif event["subject"] is not None and kind in _NAME_FIELDS:
            record_ids.append((_NAME_FIELDS[kind], event["subject"]["id"]))
        record_ids.append(("list_id", event["list_id"]))
    return record_names.find_names(uow, account_id, record_ids)


def names_members(events: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether events contain members' addresses."""
    return any(event.get("data", {}).get("email") for event in events)


def _merge_equal_events(events: Iterable[EventView]) -> list[EventView]:
    """Merge consecutive events that have the same type, subject and day in UTC."""
    merged_events: list[EventView] = []
    for event in events:
        last = merged_events[-1] if merged_events else None
        if (
            last is not None
            and last.at.date() == event.at.date()
            and (last.type, last.about, last.path, last.changed)
            == (event.type, event.about, event.path, event.changed)
        ):
            merged_events[-1] = replace(last, times=last.times + 1)
        else:
            merged_events.append(event)
    return merged_events


def merge_similar_events(events: Iterable[EventView]) -> list[EventView]:
    """Merge consecutive events of a day that have the same type and list."""
    merged_events: list[EventView] = []
    for (_, kind, _), run in groupby(
        events, lambda each: (each.at.date(), each.type, each.list_title)
    ):
        similar_events = list(run)
        is_of_members = CATALOGUE[FeedEventType(kind)].subject is SubjectKind.SUBSCRIPTION
        if is_of_members and len(similar_events) > _MAX_SINGLE_EVENTS:
            others = len({each.about for each in similar_events}) - 1
            times = 1 if others else sum(each.times for each in similar_events)
            changed = tuple(dict.fromkeys(name for each in similar_events for name in each.changed))
            newest = similar_events[0]
            similar_events = [replace(newest, times=times, others=others, changed=changed)]
        merged_events += similar_events
    return merged_events


def find_subject(
    event: Mapping[str, Any], names: Mapping[RecordId, str] = _NO_NAMES
) -> tuple[str, str | None]:
    """Return the name of an event's subject, and the console page about the subject.

    The subject's name is an empty string if the subject was erased, or if the event is a test
    event.
    """
    if event["type"] not in [*FeedEventType]:
        return "", None
    kind = FeedEventType(event["type"])
    data = event["data"]
    subject = event["subject"]
    about = ""
    path = None
    match CATALOGUE[kind].subject:
        case SubjectKind.SUBSCRIPTION:
            about = data["email"] or ""
            path = f"lists/{event['list_id']}/members/{data['user_id']}" if about else None
        case SubjectKind.ATTACHMENT:
            hash_id = data["hash_id"]
            about = names.get(("hash_id", hash_id), hash_id)
            path = None if kind is FeedEventType.ATTACHMENT_DELETED else f"images/{hash_id}"
        case SubjectKind.SEGMENT:
            segment_id = data["segment_id"]
            about = data["segment"] or f"segment {segment_id}"
            path = data["segment"] and f"lists/{event['list_id']}/segments/{segment_id}"
        case SubjectKind.SENDER if kind is FeedEventType.MAILING_ALARM:
            # An alarm about a mailing links to the mailing instead of the sender, because another
            # owner may have registered the sender.
            mailing_id = data["mailing_id"]
            list_title = names.get(("list_id", event["list_id"]), "")
            about = f"{list_title}, mailing {mailing_id}" if list_title else f"mailing {mailing_id}"
            path = f"lists/{event['list_id']}/mailings#mailing-{mailing_id}"
        case subject_kind if subject is not None:
            about = names.get(
                (_NAME_FIELDS.get(subject_kind, ""), subject["id"]),
                f"{subject_kind} {subject['id']}",
            )
            if subject_kind is SubjectKind.EXPORT and ("list_id", event["list_id"]) in names:
                about = names["list_id", event["list_id"]]
            path = (
                f"{_PATHS_BY_SUBJECT[subject_kind]}/{subject['id']}"
                if subject_kind in _PATHS_BY_SUBJECT
                else None
            )
    return about, path and f"{CONSOLE_PATH}/{path}"


def _build_view(event: Mapping[str, Any], names: Mapping[RecordId, str]) -> EventView:
    kind = FeedEventType(event["type"])
    about, path = find_subject(event, names)
    changed = event["data"].get("changed") if kind is _TYPE.SUBSCRIPTION_CHANGED else None
    is_of_member = CATALOGUE[kind].subject is SubjectKind.SUBSCRIPTION
    return EventView(
        kind,
        datetime.fromisoformat(event["occurred_at"]),
        TYPE_LABELS[kind],
        about,
        path,
        orjson.dumps(event, option=orjson.OPT_INDENT_2).decode(),
        changed=tuple(ATTRIBUTE_LABELS.get(each, each) for each in changed or ()),
        list_title=names.get(("list_id", event["list_id"]), "") if is_of_member else "",
        is_pending=kind is FeedEventType.SUBSCRIPTION_CREATED
        and event["data"]["status"] == SubscriptionStatus.PENDING,
    )
