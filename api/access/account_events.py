"""Events in words, for the pages of their account's owner."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from api.access.browsers import browser_name
from models import RecordedEvent
from services.events.catalogue import EventType
from services.events.event_origins import CredentialKind

_WORDS = {
    EventType.LOGIN_SUCCEEDED: "Logged in",
    EventType.LOGIN_FAILED: "A login failed: the password or the code was wrong",
    EventType.SESSION_ENDED: "Logged out",
    EventType.PASSWORD_CHANGED: "The password was changed",
    EventType.PASSWORD_RESET: "A new password was set by a mailed link",
    EventType.ADDRESS_CHANGED: "The e-mail address was changed",
    EventType.ADDRESS_UNDONE: "A change of the e-mail address was undone",
    EventType.RECORDS_MERGED: "The subscriptions of your two addresses were put together",
    EventType.KEY_CREATED: "An API key was made",
    EventType.KEY_ENDED: "An API key was ended",
    EventType.GRANT_CREATED: "A program was given access",
    EventType.GRANT_ENDED: "A program lost its access",
    EventType.FACTOR_ADDED: "A second factor was added",
    EventType.FACTOR_REMOVED: "A second factor was removed",
    EventType.EXPORT_CREATED: "An export of a list was made",
    EventType.WEBHOOK_CREATED: "A webhook endpoint was made",
    EventType.WEBHOOK_CHANGED: "A webhook endpoint got another URL",
    EventType.WEBHOOK_ENDED: "A webhook endpoint was ended",
    EventType.PLAN_REFUSED: "Something was refused that the plan doesn’t have",
    EventType.QUOTA_REFUSED: "Something was refused that is more than the plan has",
    EventType.PLAN_CHANGED: "The plan was changed",
    EventType.OPERATOR_ACTED: "You did something as an operator",
}
# For events that have a number, by its name.
_SEVERAL = {
    "attempts": "{} logins in a row failed: the password or the code was wrong",
    "sessions": "{} browsers were logged out",
    "keys": "{} API keys were ended",
    "endpoints": "{} webhook endpoints were ended",
    "grants": "{} programs lost their access",
}
_BY = {
    CredentialKind.KEY: "by an API key",
    CredentialKind.GRANT: "by a program with access",
    CredentialKind.COMMAND: "by the operator",
}


@dataclass(frozen=True)
class EventLine:
    text: str
    # Such as "Firefox on Linux, 192.0.2.7".
    origin: str
    occurred_at: datetime


def event_lines(events: Iterable[RecordedEvent]) -> list[EventLine]:
    return [_line(event) for event in events]


def _line(event: RecordedEvent) -> EventLine:
    several = ((words, event.detail.get(name, 1)) for name, words in _SEVERAL.items())
    counted = [words.format(number) for words, number in several if number > 1]
    kind = event.credential_kind
    by = None if kind is None else _BY.get(CredentialKind(kind))
    origin = filter(None, (browser_name(event.user_agent), event.ip, by))
    return EventLine((counted or [_words(event.type)])[0], ", ".join(origin), event.occurred_at)


def _words(kind: str) -> str:
    # Beside this release a later one may run, which records more.
    return _WORDS[EventType(kind)] if kind in [*EventType] else kind
