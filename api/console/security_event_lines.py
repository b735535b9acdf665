"""Describes security events of an account, such as a login, in one line each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from api.client_details import browser_name
from core.ids import AccountId
from models import RecordedEvent
from services.event_origins import CredentialKind
from services.feed import record_names
from services.feed.record_names import RecordId
from services.security_events import EventType
from storage.unit_of_work import UnitOfWork

_EVENT_LABELS = {
    EventType.LOGIN_SUCCEEDED: "Logged in",
    EventType.LOGIN_FAILED: "A login failed because of a wrong password or code",
    EventType.SESSION_ENDED: "Logged out",
    EventType.PASSWORD_CHANGED: "The password was changed",
    EventType.PASSWORD_RESET: "The password was reset with a link from an e-mail",
    EventType.ADDRESS_CHANGED: "The e-mail address was changed",
    EventType.ADDRESS_UNDONE: "A change of the e-mail address was undone",
    EventType.KEY_CREATED: "An API key was created",
    EventType.KEY_ENDED: "An API key was revoked",
    EventType.GRANT_CREATED: "An app was granted access",
    EventType.GRANT_ENDED: "An app lost access",
    EventType.FACTOR_ADDED: "A second factor was added",
    EventType.FACTOR_REMOVED: "A second factor was removed",
    EventType.EXPORT_CREATED: "A list was exported",
    EventType.MEMBERS_READ: "An unusually large number of members was read",
    EventType.WEBHOOK_CREATED: "A webhook was created",
    EventType.WEBHOOK_CHANGED: "The URL of a webhook was changed",
    EventType.WEBHOOK_ENDED: "A webhook was deleted or disabled",
    EventType.SENDER_CREATED: "A sender was created",
    EventType.SENDER_CHANGED: "A sender was changed",
    EventType.SENDER_ENDED: "A sender was deleted",
    EventType.PLAN_REFUSED: "A request was refused because your plan doesn’t include the feature",
    EventType.QUOTA_REFUSED: "A request was refused because it exceeds your plan’s limit",
    EventType.PLAN_CHANGED: "The plan was changed",
    EventType.OPERATOR_ACTED: "You made a change as an operator",
}
# The texts for security events that affect several records, such as two API keys. Each dictionary
# key is the name of the event's field that contains the number of affected records.
_COUNTED_EVENT_LABELS = {
    "attempts": "{} logins in a row failed because of a wrong password or code",
    "sessions": "{} browsers were logged out",
    "keys": "{} API keys were revoked",
    "endpoints": "{} webhooks were disabled",
    "senders": "{} senders were deleted",
    "grants": "{} apps lost access",
}
# These fields of a security event contain the id of a record, such as the id of an API key. The
# console shows the record's name instead of the id.
_NAMED_DETAILS = ("key_id", "grant_id", "endpoint_id", "sender_id", "list_id")
_NO_NAMES: Mapping[RecordId, str] = {}
_CREDENTIAL_LABELS = {
    CredentialKind.KEY: "by an API key",
    CredentialKind.GRANT: "by an app with access",
    CredentialKind.COMMAND: "by the operator",
}


@dataclass(frozen=True)
class EventLine:
    """A line that describes a security event.

    Attributes:
        about: the name of the record that was changed, or an empty string.
        origin: the browser, IP address and credential, as in "Firefox on Linux, 192.0.2.7".
    """

    text: str
    about: str
    origin: str
    occurred_at: datetime


def build_event_lines(
    uow: UnitOfWork, account_id: AccountId, events: Sequence[RecordedEvent]
) -> list[EventLine]:
    record_ids = [pair for event in events for pair in event.detail.items()]
    names = record_names.find_names(uow, account_id, record_ids)
    return [build_event_line(event, names) for event in events]


def build_event_line(event: RecordedEvent, names: Mapping[RecordId, str] = _NO_NAMES) -> EventLine:
    # During an upgrade, a newer release may record event types that this release doesn't know.
    text = _EVENT_LABELS[EventType(event.type)] if event.type in [*EventType] else event.type
    for name, template in _COUNTED_EVENT_LABELS.items():
        if (number := event.detail.get(name, 1)) > 1:
            text = template.format(number)
            break
    kind = event.credential_kind
    credential = None if kind is None else _CREDENTIAL_LABELS.get(CredentialKind(kind))
    origin = filter(None, (browser_name(event.user_agent), event.ip, credential))
    about = next(
        (
            names[field, event.detail[field]]
            for field in _NAMED_DETAILS
            if (field, event.detail.get(field)) in names
        ),
        "",
    )
    return EventLine(text, about, ", ".join(origin), event.occurred_at)
