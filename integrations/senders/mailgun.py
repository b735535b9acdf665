"""Verifies and reads reports from the mail provider Mailgun.

Mailgun's signature covers only a timestamp and a random token in the request body, not the event.
Mailgun documents its webhooks at
documentation.mailgun.com/docs/mailgun/user-manual/webhooks.
"""

import hashlib
import hmac
from datetime import timedelta

from core.errors.senders import SENDER_SIGNATURE_INVALID
from core.machine_agents import is_machine_agent
from integrations.senders.bounce_statuses import find_status
from integrations.senders.delivery_ids import find_delivery_id, get_named_value
from integrations.senders.event_times import parse_unix_text, parse_unix_time
from integrations.senders.events import (
    Fields,
    ParsedEvent,
    ProviderEvent,
    has_several_people,
    parse_address,
    parse_event_type,
    parse_events,
)
from integrations.senders.json_body import get_list, get_object, get_text, parse_signed_body
from integrations.senders.port import (
    BounceClass,
    ParsedBody,
    ReportKind,
    ReusableProof,
    SenderProof,
    SenderProvider,
    SenderRequest,
)

# The maximum age of a signature. The maximum age doesn't affect Mailgun's own requests, because
# Mailgun retries a request for at most eight hours.
_MAX_SIGNATURE_AGE = timedelta(hours=24)

_KINDS = {
    "delivered": ReportKind.DELIVERED,
    "opened": ReportKind.OPENED,
    "clicked": ReportKind.CLICKED,
    "complained": ReportKind.COMPLAINED,
    "unsubscribed": ReportKind.UNSUBSCRIBED,
}
# Mailgun sends no mail to a recipient who complained or unsubscribed earlier. Mailgun then reports
# that the mail failed for the reason ``suppress-complaint`` or ``suppress-unsubscribe``.
_SUPPRESSION_KINDS = {
    "suppress-complaint": ReportKind.COMPLAINED,
    "suppress-unsubscribe": ReportKind.UNSUBSCRIBED,
}
_RECIPIENT_HEADERS = ("to", "cc")
_HARD_REASONS = {"bounce", "suppress-bounce"}


class MailgunAdapter:
    provider = SenderProvider.MAILGUN

    def verify(self, request: SenderRequest, proof: SenderProof) -> ReusableProof:
        fields = get_object(parse_signed_body(request.body))
        signature = get_object(fields, "signature")
        timestamp = get_text(signature, "timestamp") or ""
        token = get_text(signature, "token") or ""
        signed_at = parse_unix_text(timestamp)
        if signed_at is None or abs(request.received_at - signed_at) > _MAX_SIGNATURE_AGE:
            raise SENDER_SIGNATURE_INVALID()
        sent_digest = (get_text(signature, "signature") or "").lower().encode()
        content = f"{timestamp}{token}".encode()
        if not any(
            hmac.compare_digest(
                hmac.new(key.encode(), content, hashlib.sha256).hexdigest().encode(), sent_digest
            )
            for key in proof.secrets
        ):
            raise SENDER_SIGNATURE_INVALID()
        # The signature doesn't cover the event's id either, so an attacker could send another event
        # with the same id.
        event = (get_text(fields, "event-data", "id"), _parse_event(fields))
        expires_at = max(signed_at, request.received_at) + _MAX_SIGNATURE_AGE
        return ReusableProof(content, repr(event).encode(), expires_at)

    def parse(self, body: bytes) -> ParsedBody:
        return parse_events(body, _parse_event)


def _parse_event(fields: Fields) -> ParsedEvent:
    data = get_object(fields, "event-data")
    event_type = parse_event_type(data.get("event"))
    headers = get_object(data, "message", "headers")
    variables = get_object(data, "user-variables")
    event = ProviderEvent(
        event_type=event_type,
        # A delivery id belongs to one recipient. If a mail has several recipients, the event
        # doesn't say which recipient the delivery id belongs to.
        delivery_id=None
        if _is_shared(data)
        else find_delivery_id(get_named_value(variables, "delivery_id"), headers, data.get("tags")),
        email=parse_address(data.get("recipient")),
        occurred_at=parse_unix_time(data.get("timestamp")),
        message_id=get_text(headers, "message-id"),
    )
    if event_type is None:
        return event.reject()
    if event_type == "failed":
        return _parse_failure(event, data)
    if kind := _KINDS.get(event_type):
        return event.report(kind, is_machine=_is_machine(data))
    return event.ignore()


def _is_shared(data: Fields) -> bool:
    message = get_object(data, "message")
    headers = get_object(message, "headers")
    header_texts = (get_named_value(headers, name) for name in _RECIPIENT_HEADERS)
    header_addresses = [
        part
        for text in header_texts
        if isinstance(text, str)
        for part in text.split(",")
        if "@" in part
    ]
    return has_several_people(get_list(message, "recipients")) or has_several_people(
        header_addresses
    )


def _parse_failure(event: ProviderEvent, data: Fields) -> ParsedEvent:
    reason = get_text(data, "reason") or ""
    if kind := _SUPPRESSION_KINDS.get(reason):
        return event.report(kind)
    if reason == "espblock":
        bounce_class = BounceClass.BLOCKED
    elif data.get("severity") == "permanent" and reason in _HARD_REASONS:
        bounce_class = BounceClass.HARD
    else:
        bounce_class = BounceClass.SOFT
    outcome = get_object(data, "delivery-status")
    status = find_status(
        outcome.get("enhanced-code"), outcome.get("message"), outcome.get("description")
    )
    return event.report_bounce(bounce_class, status)


def _is_machine(data: Fields) -> bool:
    client = get_object(data, "client-info")
    return bool(client.get("bot")) or is_machine_agent(client.get("user-agent"))
