"""Verifies and reads reports from the mail provider Resend.

Resend uses Svix to sign requests. Resend documents its events at resend.com/docs/webhooks.
"""

from core.machine_agents import is_machine_agent
from integrations.senders.bounce_statuses import find_status
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
from integrations.senders.json_body import get_list, get_object, get_text
from integrations.senders.port import (
    BounceClass,
    ParsedBody,
    ReportKind,
    SenderProof,
    SenderProvider,
    SenderRequest,
)
from integrations.senders.standard_webhooks import SVIX_HEADERS, verify_message

_KINDS = {
    "email.delivered": ReportKind.DELIVERED,
    "email.opened": ReportKind.OPENED,
    "email.clicked": ReportKind.CLICKED,
    "email.complained": ReportKind.COMPLAINED,
}
# Maps the event types of opens and clicks to the field that contains the user agent.
_ACTION_FIELDS = {"email.opened": "open", "email.clicked": "click"}
_BOUNCE_TYPES = {"email.bounced", "email.suppressed", "email.failed"}
_MAX_REPLIES = 10


class ResendAdapter:
    provider = SenderProvider.RESEND

    def verify(self, request: SenderRequest, proof: SenderProof) -> None:
        verify_message(request, proof.secrets, SVIX_HEADERS)

    def parse(self, body: bytes) -> ParsedBody:
        return parse_events(body, _parse_event)


def _parse_event(fields: Fields) -> ParsedEvent:
    event_type = parse_event_type(fields.get("type"))
    data = get_object(fields, "data")
    recipients = [recipient for name in ("to", "cc", "bcc") for recipient in get_list(data, name)]
    tags = data.get("tags")
    event = ProviderEvent(
        event_type=event_type,
        delivery_id=find_delivery_id(
            get_named_value(tags, "delivery_id"), data.get("headers"), _list_tag_values(tags)
        ),
        email=parse_address(recipients[0] if recipients else data.get("email")),
        occurred_at=parse_iso_time(fields.get("created_at")),
        message_id=get_text(data, "email_id"),
    )
    if event_type is None:
        return event.reject()
    if event_type == "contact.updated" and data.get("unsubscribed") is True:
        return event.report(ReportKind.UNSUBSCRIBED)
    if len(recipients) > 1:
        # If a mail has several recipients, Resend's event doesn't say which recipient it concerns.
        return event.ignore()
    if event_type in _BOUNCE_TYPES:
        return _parse_bounce(event, data)
    if kind := _KINDS.get(event_type):
        action = get_object(data, _ACTION_FIELDS.get(event_type, ""))
        return event.report(kind, is_machine=is_machine_agent(action.get("userAgent")))
    return event.ignore()


def _parse_bounce(event: ProviderEvent, data: Fields) -> ParsedEvent:
    bounce = get_object(data, "bounce")
    match event.event_type, bounce.get("type"):
        case ("email.suppressed", _) | ("email.bounced", "Permanent"):
            bounce_class = BounceClass.HARD
        case ("email.failed", _):
            bounce_class = BounceClass.BLOCKED
        case _:
            bounce_class = BounceClass.SOFT
    # Store only the status codes in the replies of the recipient's server, because the replies may
    # contain personal data.
    replies = get_list(bounce, "diagnosticCode")[:_MAX_REPLIES]
    return event.report_bounce(bounce_class, find_status(*replies, bounce.get("message")))


def _list_tag_values(tags: object) -> list[object]:
    if isinstance(tags, list):
        return [get_object(tag).get("value") for tag in tags]
    return list(get_object(tags).values())
