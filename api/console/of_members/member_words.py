"""What became of a member, and how they agreed, in words for the list's owner."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from models import SubscriptionEvent
from services.mailing.consent.member_consent import ConsentShown

STATUSES = {
    "active": "Active",
    "pending": "Not confirmed yet",
    "unsubscribed": "Left the list",
    "removed": "Removed",
}
TIERS = {"free": "Free", "silver": "Silver", "gold": "Gold"}
SOURCES = {
    "challenge": "By a sign-up form with a challenge",
    "form": "By a sign-up form",
    "login": "Subscribed while logged in",
    "import": "Imported",
    "transfer": "Moved from another list",
    "owner": "Added one by one",
}
_ACTIONS = {
    "requested": "Asked to subscribe",
    "subscribed": "Subscribed",
    "added": "Added",
    "confirmed": "Confirmed by the mailed link",
    "unsubscribed": "Left the list",
    "unsubscribing_undone": "Came back",
    "email_enabled": "Mail switched on",
    "email_disabled": "Mail switched off",
    "removed": "Removed",
    "edited": "Changed",
    "transferred_in": "Moved here from another list",
    "transferred_away": "Moved to another list",
    "imported": "Imported",
    "import_undone": "An import was undone",
    "bulk_undone": "An act on many members was undone",
    "lapsed": "Never confirmed, and lapsed",
    "erased": "Erased",
}
_ACTORS = {
    "user": "by the person",
    "owner": "by you",
    "import": "by an import of yours",
    "operator": "by the operator",
    "stranger": "by a sign-up form",
}
_VIAS = {
    "one-click": "with their mail program’s button",
    "page": "on the page that mails lead to",
    "trace": "by a program, with the mail’s trace id",
    "bulk": "in an act on many members",
}
_CHANGED = {
    "name": "name",
    "email": "address",
    "type": "tier",
    "paid_expiry": "end of the tier",
    "tags": "tags",
}
_HOWS = {
    "form": "Filled in a sign-up form",
    "confirmation": "Confirmed by the mailed link",
    "login": "Subscribed while logged in",
    "link": "Came back by a link in a mail",
    "owner": "Was added by you",
    "import": "Came in a file",
    "transfer": "Was moved from another list of yours",
}
# Who says so, where it is no product that the file came from.
_CLAIMS = {"owner": "as you say", "file": "says the file"}


@dataclass(frozen=True)
class HistoryLine:
    text: str
    # Such as "by you, in an act on many members".
    origin: str
    occurred_at: datetime


def history_lines(events: Iterable[SubscriptionEvent]) -> list[HistoryLine]:
    return [_line(event) for event in events]


def _line(event: SubscriptionEvent) -> HistoryLine:
    changed = [_CHANGED.get(name, name.removeprefix("fields.")) for name in event.changed or ()]
    text = _ACTIONS.get(event.action, event.action)
    if changed:
        text += f": {', '.join(changed)}"
    origin = (_ACTORS.get(event.actor, event.actor), _VIAS.get(event.via), event.ip)
    return HistoryLine(text, ", ".join(filter(None, origin)), event.created_at)


def consent_words(shown: ConsentShown) -> str:
    """How a member agreed; a claim says who makes it."""
    words = _HOWS.get(shown.how, shown.how)
    if shown.claimed_by is None:
        return words
    claim = _CLAIMS.get(shown.claimed_by, f"says {shown.claimed_by}")
    return f"{words}, {claim}"
