"""Verifies and reads reports from the mail provider Twilio SendGrid.

An ECDSA signature covers a timestamp header and the request body. SendGrid documents its events at
twilio.com/docs/sendgrid/for-developers/tracking-events/event, and the signature at
/tracking-events/getting-started-event-webhook-security-features.
"""

import base64
import binascii
from datetime import timedelta

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    load_der_public_key,
    load_pem_public_key,
)

from core.errors.senders import SENDER_SIGNATURE_INVALID
from core.machine_agents import is_machine_agent
from integrations.senders.bounce_statuses import find_status
from integrations.senders.delivery_ids import find_delivery_id
from integrations.senders.event_times import parse_unix_text, parse_unix_time
from integrations.senders.events import (
    Fields,
    ParsedEvent,
    ProviderEvent,
    parse_address,
    parse_event_type,
    parse_events,
)
from integrations.senders.json_body import get_text
from integrations.senders.port import (
    BounceClass,
    ParsedBody,
    ReportKind,
    SenderProof,
    SenderProvider,
    SenderRequest,
)

SIGNATURE_HEADER = "x-twilio-email-event-webhook-signature"
TIMESTAMP_HEADER = "x-twilio-email-event-webhook-timestamp"

# The maximum age of a signature. Otherwise, an attacker could repeat a stolen request for ever.
# SendGrid retries a request for at most 24 hours.
_MAX_SIGNATURE_AGE = timedelta(hours=25)
_KINDS = {
    "delivered": ReportKind.DELIVERED,
    "open": ReportKind.OPENED,
    "click": ReportKind.CLICKED,
    "spamreport": ReportKind.COMPLAINED,
    "unsubscribe": ReportKind.UNSUBSCRIBED,
    "group_unsubscribe": ReportKind.UNSUBSCRIBED,
}
_BOUNCE_CLASSES = {"bounce": BounceClass.HARD, "blocked": BounceClass.SOFT}
# Maps the reasons why SendGrid didn't send a mail, in lower case, to the kind of the report.
_DROP_KINDS = {
    "spam reporting address": ReportKind.COMPLAINED,
    "unsubscribed address": ReportKind.UNSUBSCRIBED,
}
_DROP_CLASSES = {
    "bounced address": BounceClass.HARD,
    "invalid": BounceClass.HARD,
    "spam content": BounceClass.CONTENT,
}


def is_public_key(text: str) -> bool:
    """Accept a P-256 public key in PEM, or in DER with base64 encoding."""
    return _load_public_key(text) is not None


class SendGridAdapter:
    provider = SenderProvider.SENDGRID

    def verify(self, request: SenderRequest, proof: SenderProof) -> None:
        timestamp = request.headers.get(TIMESTAMP_HEADER, "")
        signed_at = parse_unix_text(timestamp)
        if signed_at is None or abs(request.received_at - signed_at) > _MAX_SIGNATURE_AGE:
            # The signature covers the timestamp followed by the body. If an empty timestamp were
            # accepted, an attacker could move the timestamp of a signed request from the header to
            # the start of the body, and the signature would still match.
            raise SENDER_SIGNATURE_INVALID()
        content = timestamp.encode(errors="replace") + request.body
        try:
            signature = base64.b64decode(request.headers.get(SIGNATURE_HEADER, ""), validate=True)
        except (binascii.Error, ValueError):
            raise SENDER_SIGNATURE_INVALID() from None
        keys = [key for key in map(_load_public_key, proof.secrets) if key is not None]
        if not any(_is_signed_by(key, signature, content) for key in keys):
            raise SENDER_SIGNATURE_INVALID()

    def parse(self, body: bytes) -> ParsedBody:
        return parse_events(body, _parse_event)


def _is_signed_by(key: ec.EllipticCurvePublicKey, signature: bytes, content: bytes) -> bool:
    try:
        key.verify(signature, content, ec.ECDSA(SHA256()))
    except InvalidSignature:
        return False
    return True


def _load_public_key(text: str) -> ec.EllipticCurvePublicKey | None:
    content = text.strip().encode(errors="replace")
    try:
        if content.startswith(b"-----"):
            key = load_pem_public_key(content)
        else:
            key = load_der_public_key(base64.b64decode(content, validate=True))
    except (ValueError, UnsupportedAlgorithm):
        return None
    if isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1):
        return key
    return None


def _parse_event(fields: Fields) -> ParsedEvent:
    event_type = parse_event_type(fields.get("event"))
    event = ProviderEvent(
        event_type=event_type,
        delivery_id=find_delivery_id(fields.get("delivery_id"), fields, fields.get("category")),
        email=parse_address(fields.get("email")),
        occurred_at=parse_unix_time(fields.get("timestamp")),
        message_id=get_text(fields, "sg_message_id"),
    )
    if event_type is None:
        return event.reject()
    if event_type == "bounce":
        bounce_class = _BOUNCE_CLASSES.get(get_text(fields, "type") or "")
        if bounce_class is None:
            return event.ignore()
        return event.report_bounce(bounce_class, _find_status(fields))
    if event_type == "dropped":
        return _parse_drop(event, fields)
    if kind := _KINDS.get(event_type):
        is_machine = fields.get("sg_machine_open") is True
        return event.report(
            kind, is_machine=is_machine or is_machine_agent(fields.get("useragent"))
        )
    return event.ignore()


def _parse_drop(event: ProviderEvent, fields: Fields) -> ParsedEvent:
    reason = (get_text(fields, "reason") or "").strip().lower()
    if kind := _DROP_KINDS.get(reason):
        return event.report(kind)
    bounce_class = _DROP_CLASSES.get(reason, BounceClass.BLOCKED)
    return event.report_bounce(bounce_class, _find_status(fields))


def _find_status(fields: Fields) -> str | None:
    return find_status(fields.get("status"), fields.get("reason"))
