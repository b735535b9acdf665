"""Verifies and reads reports from the mail provider Postmark.

Postmark doesn't sign requests, but sends credentials or the header ``Authorization`` from the
owner's settings. Postmark documents its events at postmarkapp.com/developer/webhooks.
"""

from core.machine_agents import is_machine_agent
from integrations.senders.bounce_statuses import find_status
from integrations.senders.credentials import verify_credentials
from integrations.senders.delivery_ids import find_delivery_id, get_named_value
from integrations.senders.event_times import parse_iso_time
from integrations.senders.events import (
    Fields,
    ParsedEvent,
    ProviderEvent,
    parse_address,
    parse_event_type,
    parse_events,
)
from integrations.senders.json_body import get_object, get_text
from integrations.senders.port import (
    BounceClass,
    ParsedBody,
    ReportKind,
    SenderProof,
    SenderProvider,
    SenderRequest,
)

_KINDS = {
    "SpamComplaint": ReportKind.COMPLAINED,
    "Delivery": ReportKind.DELIVERED,
    "Open": ReportKind.OPENED,
    "Click": ReportKind.CLICKED,
}
_BOUNCE_CLASSES = {
    "HardBounce": BounceClass.HARD,
    "BadEmailAddress": BounceClass.HARD,
    "SoftBounce": BounceClass.SOFT,
    "Transient": BounceClass.SOFT,
    "DnsError": BounceClass.SOFT,
    "Blocked": BounceClass.BLOCKED,
    "DMARCPolicy": BounceClass.BLOCKED,
    "SpamNotification": BounceClass.CONTENT,
}
# Maps each record type of Postmark to the field that contains the time of the event.
_TIME_FIELDS = {
    "Bounce": "BouncedAt",
    "SpamComplaint": "BouncedAt",
    "Delivery": "DeliveredAt",
    "Open": "ReceivedAt",
    "Click": "ReceivedAt",
    "SubscriptionChange": "ChangedAt",
}


class PostmarkAdapter:
    provider = SenderProvider.POSTMARK

    def verify(self, request: SenderRequest, proof: SenderProof) -> None:
        verify_credentials(request, proof.secrets)

    def parse(self, body: bytes) -> ParsedBody:
        return parse_events(body, _parse_event)


def _parse_event(fields: Fields) -> ParsedEvent:
    record_type = parse_event_type(fields.get("RecordType"))
    bounce_type = parse_event_type(fields.get("Type"))
    metadata = get_object(fields, "Metadata")
    event = ProviderEvent(
        event_type=bounce_type if record_type == "Bounce" and bounce_type else record_type,
        delivery_id=find_delivery_id(
            get_named_value(metadata, "delivery_id"), metadata, fields.get("Tag")
        ),
        email=parse_address(fields.get("Email") or fields.get("Recipient")),
        occurred_at=parse_iso_time(fields.get(_TIME_FIELDS.get(record_type or "", ""))),
        message_id=get_text(fields, "MessageID"),
    )
    match record_type:
        case "Bounce":
            return _parse_bounce(event, bounce_type, fields)
        case "SubscriptionChange":
            is_unsubscription = _is_unsubscription(fields)
            return event.report(ReportKind.UNSUBSCRIBED) if is_unsubscription else event.ignore()
        case None:
            return event.reject()
    if kind := _KINDS.get(record_type):
        return event.report(kind, is_machine=is_machine_agent(fields.get("UserAgent")))
    return event.ignore()


def _parse_bounce(event: ProviderEvent, bounce_type: str | None, fields: Fields) -> ParsedEvent:
    match bounce_type:
        case "SpamComplaint":
            return event.report(ReportKind.COMPLAINED)
        case "Unsubscribe":
            return event.report(ReportKind.UNSUBSCRIBED)
    if bounce_class := _BOUNCE_CLASSES.get(bounce_type or ""):
        return event.report_bounce(bounce_class, find_status(fields.get("Details")))
    return event.ignore()


def _is_unsubscription(fields: Fields) -> bool:
    """Ignore a ``SubscriptionChange`` that a bounce or a complaint has caused."""
    is_suppressed = fields.get("SuppressSending") is True
    return is_suppressed and fields.get("SuppressionReason") == "ManualSuppression"
