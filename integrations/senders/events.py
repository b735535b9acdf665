"""Converts the events in a provider's request body to reports."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from email.utils import parseaddr

from integrations.senders.bounce_statuses import choose_bounce_class
from integrations.senders.json_body import parse_json
from integrations.senders.port import (
    BounceClass,
    ParsedBody,
    Report,
    ReportKind,
    UnusedEvent,
    UnusedReason,
)

# The maximum number of events that are read from a request body. Genuine requests contain fewer
# events, because 10,000 genuine events are larger than 1 MB, the maximum size of a request body.
MAX_EVENTS = 10_000
_MAX_ADDRESS_CHARACTERS = 320
_MAX_TYPE_CHARACTERS = 100

ParsedEvent = Report | UnusedEvent
Fields = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class ProviderEvent:
    """The fields that all events of a provider have in common."""

    event_type: str | None
    delivery_id: str | None
    email: str | None
    occurred_at: datetime | None
    message_id: str | None

    def report(self, kind: ReportKind, *, is_machine: bool = False) -> ParsedEvent:
        """Ignore ``is_machine`` except for opens and clicks, because complaints and unsubscriptions
        must always take effect.
        """
        is_action = kind in (ReportKind.OPENED, ReportKind.CLICKED)
        return self._build(Report(kind, is_machine=is_machine and is_action))

    def report_bounce(self, named_class: BounceClass, status: str | None) -> ParsedEvent:
        bounce_class = choose_bounce_class(named_class, status)
        return self._build(Report(ReportKind.BOUNCED, bounce_class=bounce_class, status=status))

    def ignore(self) -> UnusedEvent:
        return self._leave_unused(UnusedReason.IGNORED)

    def reject(self) -> UnusedEvent:
        return self._leave_unused(UnusedReason.INVALID)

    def _build(self, report: Report) -> ParsedEvent:
        if self.delivery_id is None and self.email is None:
            return self.reject()
        return replace(
            report,
            delivery_id=self.delivery_id,
            email=self.email,
            occurred_at=self.occurred_at,
            message_id=self.message_id,
        )

    def _leave_unused(self, reason: UnusedReason) -> UnusedEvent:
        return UnusedEvent(reason, self.event_type, self.occurred_at)


def parse_events(body: bytes, parse_event: Callable[[Fields], ParsedEvent]) -> ParsedBody:
    """Parse an event or a list of events. ``parse_event`` must never raise an exception."""
    content = parse_json(body)
    items = content if isinstance(content, list) else [content]
    events: list[ParsedEvent] = [
        parse_event(item) if isinstance(item, dict) else UnusedEvent(UnusedReason.INVALID)
        for item in items[:MAX_EVENTS]
    ]
    if len(items) > MAX_EVENTS:
        events.append(UnusedEvent(UnusedReason.INVALID))
    return ParsedBody(tuple(events))


def parse_address(value: object) -> str | None:
    """Return the address in a text such as ``Name <address>``."""
    if not isinstance(value, str) or not value.isprintable():
        return None
    if len(value) > _MAX_ADDRESS_CHARACTERS:
        return None
    address = parseaddr(value)[1] if "<" in value else value.strip()
    local_part, _, domain = address.rpartition("@")
    return address if local_part and domain else None


def has_several_people(values: Iterable[object]) -> bool:
    # Parse each distinct text only once, because parsing a hostile address takes a millisecond.
    texts = dict.fromkeys(map(str, values))
    addresses = ((parse_address(text) or text).casefold() for text in texts)
    first_address = next(addresses, None)
    return any(address != first_address for address in addresses)


def parse_event_type(value: object) -> str | None:
    if not isinstance(value, str) or not value.isprintable():
        return None
    return value[:_MAX_TYPE_CHARACTERS] or None
