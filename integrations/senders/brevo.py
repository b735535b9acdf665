"""Verifies and reads reports from the mail provider Brevo.

Brevo doesn't sign requests, but sends HTTP Basic credentials or a Bearer token from the owner's
settings of the webhook. Brevo documents its events at
developers.brevo.com/docs/transactional-webhooks.
"""

from core.machine_agents import is_machine_agent
from integrations.senders.bounce_statuses import find_status
from integrations.senders.credentials import verify_credentials
from integrations.senders.delivery_ids import find_delivery_id, get_named_value
from integrations.senders.event_times import parse_unix_time
from integrations.senders.events import (
    Fields,
    ParsedEvent,
    ProviderEvent,
    parse_address,
    parse_event_type,
    parse_events,
)
from integrations.senders.json_body import get_text, parse_json
from integrations.senders.port import (
    BounceClass,
    ParsedBody,
    ReportKind,
    SenderProof,
    SenderProvider,
    SenderRequest,
)

_KINDS = {
    "delivered": ReportKind.DELIVERED,
    "opened": ReportKind.OPENED,
    "unique_opened": ReportKind.OPENED,
    "proxy_open": ReportKind.OPENED,
    "unique_proxy_open": ReportKind.OPENED,
    "click": ReportKind.CLICKED,
    "spam": ReportKind.COMPLAINED,
    "complaint": ReportKind.COMPLAINED,
    "unsubscribe": ReportKind.UNSUBSCRIBED,
    "unsubscribed": ReportKind.UNSUBSCRIBED,
}
_MACHINE_TYPES = {"proxy_open", "unique_proxy_open"}
_BOUNCE_CLASSES = {
    "hard_bounce": BounceClass.HARD,
    "invalid_email": BounceClass.HARD,
    "soft_bounce": BounceClass.SOFT,
    "blocked": BounceClass.BLOCKED,
    "error": BounceClass.BLOCKED,
}
_MILLISECONDS_PER_SECOND = 1000


class BrevoAdapter:
    provider = SenderProvider.BREVO

    def verify(self, request: SenderRequest, proof: SenderProof) -> None:
        verify_credentials(request, proof.secrets)

    def parse(self, body: bytes) -> ParsedBody:
        return parse_events(body, _parse_event)


def _parse_event(fields: Fields) -> ParsedEvent:
    event_type = parse_event_type(fields.get("event"))
    event = ProviderEvent(
        event_type=event_type,
        delivery_id=find_delivery_id(
            _get_custom_header(fields), fields, fields.get("tags") or fields.get("tag")
        ),
        email=parse_address(fields.get("email")),
        # The fields ``date``, ``ts`` and ``ts_event`` are useless, because they are in the unknown
        # time zone of the owner's account.
        occurred_at=parse_unix_time(fields.get("ts_epoch"), _MILLISECONDS_PER_SECOND),
        message_id=get_text(fields, "message-id"),
    )
    if event_type is None:
        return event.reject()
    if bounce_class := _BOUNCE_CLASSES.get(event_type):
        return event.report_bounce(bounce_class, find_status(fields.get("reason")))
    if kind := _KINDS.get(event_type):
        is_machine = event_type in _MACHINE_TYPES or is_machine_agent(fields.get("user_agent"))
        return event.report(kind, is_machine=is_machine)
    return event.ignore()


def _get_custom_header(fields: Fields) -> object:
    """Return the delivery id, or the field ``delivery_id`` of a JSON object in the header."""
    value = get_named_value(fields, "x-mailin-custom")
    content = parse_json(value.encode()) if isinstance(value, str) else None
    return get_named_value(content, "delivery_id") if isinstance(content, dict) else value
