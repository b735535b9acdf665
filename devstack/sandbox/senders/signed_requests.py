"""Builds the requests of mail providers, with valid and invalid signatures and secrets.

A proof is a signature or a secret that shows that a request is genuine. Mailgun, Resend and
SendGrid create the keys for their signatures themselves, so the sandbox has its own Mailgun, Resend
and SendGrid keys. For Postmark, Brevo and Pressroom's own format, Pressroom creates the secret.
"""

import base64
import gzip
import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cached_property
from typing import Any

import orjson
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from devstack.sandbox.senders.amazon_sns import TOPIC_ARN, SnsServer
from devstack.sandbox.senders.mail_events import EVENT_BUILDERS, MailEvent, ProviderName

MAILGUN_SIGNING_KEY = "sandbox-mailgun-signing-key"
RESEND_SIGNING_SECRET = "whsec_c2FuZGJveC1yZXNlbmQtc2lnbmluZy1zZWNyZXQ="  # noqa: S105
USERNAME = "pressroom"

# The age of the signature in a request with ``ProofVariant.OLD``. Pressroom rejects signatures of
# this age.
_OLD_SIGNATURE_AGE = timedelta(days=2)
_FOREIGN_SECRET = "whsec_" + base64.b64encode(b"other" * 6).decode()
# The prefixes of the headers that contain the message id, the time and the signature.
_HEADER_PREFIXES = {ProviderName.GENERIC: "webhook", ProviderName.RESEND: "svix"}


class ProofVariant(StrEnum):
    """The kind of signature or secret in a request: a valid one, an invalid one, or none.

    ``old`` means a valid signature from two days ago. ``altered`` means that the content of the
    request differs from the signed content. For Amazon SNS, ``altered`` means a valid signature of
    a message from a topic that isn't the sender's topic.

    Postmark and Brevo send credentials instead of a signature, so ``old`` and ``altered`` mean
    wrong credentials.
    """

    VALID = "valid"
    MISSING = "missing"
    INVALID = "invalid"
    OLD = "old"
    ALTERED = "altered"


@dataclass(frozen=True)
class ProviderRequest:
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RequestPlan:
    """The provider, the secret and other options with which ``ProviderKeys`` builds requests.

    Attributes:
        secret: the sender's secret, or ``None`` for the sandbox's secret for the provider.
        signature_version: 1 for SHA-1 or 2 for SHA-256 in signatures of Amazon SNS.
    """

    provider: ProviderName
    secret: str | None = None
    topic_arn: str = TOPIC_ARN
    signature_version: str = "2"
    proof: ProofVariant = ProofVariant.VALID
    is_compressed: bool = False

    @property
    def signature_age(self) -> timedelta:
        return _OLD_SIGNATURE_AGE if self.proof is ProofVariant.OLD else timedelta()


class ProviderKeys:
    """Builds requests that are signed with the sandbox's keys."""

    def __init__(self, sns: SnsServer) -> None:
        self.sns = sns

    @cached_property
    def sendgrid_key(self) -> ec.EllipticCurvePrivateKey:
        return ec.generate_private_key(ec.SECP256R1())

    @property
    def sendgrid_public_key(self) -> str:
        content = self.sendgrid_key.public_key().public_bytes(
            Encoding.DER, PublicFormat.SubjectPublicKeyInfo
        )
        return base64.b64encode(content).decode()

    def build_requests(
        self, plan: RequestPlan, events: Sequence[MailEvent]
    ) -> list[ProviderRequest]:
        contents = [EVENT_BUILDERS[plan.provider](event) for event in events]
        match plan.provider:
            case ProviderName.GENERIC:
                bodies = [_build_generic_body(contents)]
            case ProviderName.SENDGRID:
                bodies = [_serialise(contents)]
            case ProviderName.BREVO if len(contents) > 1:
                bodies = [_serialise(contents)]
            case ProviderName.SES:
                return [
                    _compress(plan, self._build_notification(plan, content)) for content in contents
                ]
            case ProviderName.MAILGUN:
                return [_compress(plan, _sign_mailgun(plan, content)) for content in contents]
            case _:
                bodies = [_serialise(content) for content in contents]
        unsigned = [_compress(plan, ProviderRequest(body)) for body in bodies]
        return [self._sign(plan, each) for each in unsigned]

    def build_topic_change(
        self, plan: RequestPlan, message_type: str, *, outages: int = 0
    ) -> ProviderRequest:
        fields = self.sns.build_confirmation(
            message_type,
            topic_arn=_choose_topic(plan),
            version=plan.signature_version,
            outages=outages,
            age=plan.signature_age,
        )
        return _build_sns_request(plan, fields)

    def _build_notification(self, plan: RequestPlan, content: dict[str, Any]) -> ProviderRequest:
        fields = self.sns.build_notification(
            orjson.dumps(content).decode(),
            topic_arn=_choose_topic(plan),
            version=plan.signature_version,
            age=plan.signature_age,
        )
        return _build_sns_request(plan, fields)

    def _sign(self, plan: RequestPlan, unsigned: ProviderRequest) -> ProviderRequest:
        """Return the request with a signature of the bytes that are sent."""
        if plan.proof is ProofVariant.MISSING:
            return unsigned
        body = unsigned.body
        signed_at = datetime.now(UTC) - plan.signature_age
        match plan.provider:
            case ProviderName.POSTMARK | ProviderName.BREVO:
                headers = _build_credentials(plan)
                return ProviderRequest(body, unsigned.headers | headers)
            case ProviderName.SENDGRID:
                headers = self._sign_sendgrid(plan, body, signed_at)
            case _:
                headers = _sign_webhook(plan, body, signed_at)
        is_altered = plan.proof is ProofVariant.ALTERED
        return ProviderRequest(body + b" " if is_altered else body, unsigned.headers | headers)

    def _sign_sendgrid(self, plan: RequestPlan, body: bytes, signed_at: datetime) -> dict[str, str]:
        is_invalid = plan.proof is ProofVariant.INVALID
        key = ec.generate_private_key(ec.SECP256R1()) if is_invalid else self.sendgrid_key
        timestamp = str(int(signed_at.timestamp()))
        signature = key.sign(timestamp.encode() + body, ec.ECDSA(SHA256()))
        prefix = "x-twilio-email-event-webhook"
        return {
            f"{prefix}-timestamp": timestamp,
            f"{prefix}-signature": base64.b64encode(signature).decode(),
        }


def _serialise(content: object) -> bytes:
    return orjson.dumps(content)


def _compress(plan: RequestPlan, request: ProviderRequest) -> ProviderRequest:
    if not plan.is_compressed:
        return request
    headers = request.headers | {"content-encoding": "gzip"}
    return ProviderRequest(gzip.compress(request.body), headers)


def _build_generic_body(contents: Sequence[dict[str, Any]]) -> bytes:
    timestamp = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    data = {"reports": list(contents)}
    return _serialise({"type": "delivery.reports", "timestamp": timestamp, "data": data})


def _build_credentials(plan: RequestPlan) -> dict[str, str]:
    secret = plan.secret if plan.proof is ProofVariant.VALID else "other"
    value = base64.b64encode(f"{USERNAME}:{secret}".encode()).decode()
    return {"authorization": f"Basic {value}"}


def _sign_webhook(plan: RequestPlan, body: bytes, signed_at: datetime) -> dict[str, str]:
    secret = plan.secret or RESEND_SIGNING_SECRET
    if plan.proof is ProofVariant.INVALID:
        secret = _FOREIGN_SECRET
    message_id = f"msg_{secrets.token_hex(8)}"
    timestamp = str(int(signed_at.timestamp()))
    # The library ``standardwebhooks`` signs only text, but a compressed body isn't text.
    key = base64.b64decode(secret.removeprefix("whsec_"))
    digest = hmac.digest(key, f"{message_id}.{timestamp}.".encode() + body, hashlib.sha256)
    prefix = _HEADER_PREFIXES[plan.provider]
    return {
        f"{prefix}-id": message_id,
        f"{prefix}-timestamp": timestamp,
        f"{prefix}-signature": f"v1,{base64.b64encode(digest).decode()}",
    }


def _sign_mailgun(plan: RequestPlan, content: dict[str, Any]) -> ProviderRequest:
    if plan.proof is ProofVariant.MISSING:
        return ProviderRequest(_serialise(content))
    key = plan.secret or MAILGUN_SIGNING_KEY
    if plan.proof is ProofVariant.INVALID:
        key = "other"
    timestamp = str(int((datetime.now(UTC) - plan.signature_age).timestamp()))
    token = secrets.token_hex(25)
    digest = hmac.new(key.encode(), f"{timestamp}{token}".encode(), hashlib.sha256).hexdigest()
    # Change the signed token to invalidate the signature. A changed event would stay valid, because
    # Mailgun's signature doesn't cover the event.
    sent_token = f"{token}0" if plan.proof is ProofVariant.ALTERED else token
    signature = {"timestamp": timestamp, "token": sent_token, "signature": digest}
    return ProviderRequest(_serialise({"signature": signature, **content}))


def _choose_topic(plan: RequestPlan) -> str:
    is_other = plan.proof is ProofVariant.ALTERED
    return f"{plan.topic_arn}-other" if is_other else plan.topic_arn


def _build_sns_request(plan: RequestPlan, fields: dict[str, str]) -> ProviderRequest:
    match plan.proof:
        case ProofVariant.MISSING:
            fields = {name: text for name, text in fields.items() if name != "Signature"}
        case ProofVariant.INVALID:
            fields = fields | {"Signature": base64.b64encode(b"other").decode()}
    headers = {
        "content-type": "text/plain; charset=UTF-8",
        "x-amz-sns-message-type": fields["Type"],
        "x-amz-sns-message-id": fields["MessageId"],
    }
    return ProviderRequest(_serialise(fields), headers)
