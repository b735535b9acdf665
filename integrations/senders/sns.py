"""Reads the messages of Amazon SNS, and verifies their signatures.

Amazon documents the messages at
docs.aws.amazon.com/sns/latest/dg/sns-message-and-json-formats.html, and the signatures at
/sns-verify-signature-of-message.html.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.hashes import SHA1, SHA256

from integrations.senders.event_times import parse_iso_time
from integrations.senders.json_body import get_text, parse_signed_body

# The HTTP header in which Amazon SNS states the type of a message.
TYPE_HEADER = "x-amz-sns-message-type"


class SnsMessageType(StrEnum):
    NOTIFICATION = "Notification"
    SUBSCRIPTION = "SubscriptionConfirmation"
    UNSUBSCRIPTION = "UnsubscribeConfirmation"


_CONFIRMATION_FIELDS = (
    "Message",
    "MessageId",
    "SubscribeURL",
    "Timestamp",
    "Token",
    "TopicArn",
    "Type",
)
# For each message type, the fields that the signature covers, in the order in which they are
# signed. The signature covers ``Subject`` only if the message contains this field.
_SIGNED_FIELDS = {
    SnsMessageType.NOTIFICATION: (
        "Message",
        "MessageId",
        "Subject",
        "Timestamp",
        "TopicArn",
        "Type",
    ),
    SnsMessageType.SUBSCRIPTION: _CONFIRMATION_FIELDS,
    SnsMessageType.UNSUBSCRIPTION: _CONFIRMATION_FIELDS,
}
_OPTIONAL_FIELDS = {"Subject"}
_UNSIGNED_FIELDS = ("Signature", "SignatureVersion", "SigningCertURL")


@dataclass(frozen=True)
class SnsMessage:
    type: SnsMessageType
    fields: Mapping[str, str]

    @property
    def topic_arn(self) -> str:
        return self.fields["TopicArn"]

    @property
    def certificate_url(self) -> str:
        return self.fields["SigningCertURL"]

    @property
    def signature_version(self) -> str:
        return self.fields["SignatureVersion"]

    @property
    def sent_at(self) -> datetime | None:
        """Return the signed time of the message, or ``None`` if the time is invalid."""
        return parse_iso_time(self.fields["Timestamp"])

    @property
    def signed_text(self) -> str:
        names = [name for name in _SIGNED_FIELDS[self.type] if name in self.fields]
        return "".join(f"{name}\n{self.fields[name]}\n" for name in names)

    def is_signed_by(self, key: RSAPublicKey) -> bool:
        algorithm = SHA1() if self.signature_version == "1" else SHA256()  # noqa: S303 - topics' default
        try:
            signature = base64.b64decode(self.fields["Signature"], validate=True)
            key.verify(signature, self.signed_text.encode(), PKCS1v15(), algorithm)
        except (binascii.Error, ValueError, InvalidSignature, UnsupportedAlgorithm):
            return False
        return True


def parse_message(body: bytes) -> SnsMessage | None:
    """Return ``None`` if the body isn't a complete message."""
    content = parse_signed_body(body)
    type_name = get_text(content, "Type")
    if not isinstance(content, dict) or type_name not in set(SnsMessageType):
        return None
    message_type = SnsMessageType(type_name)
    names = {*_SIGNED_FIELDS[message_type], *_UNSIGNED_FIELDS}
    fields = {name: text for name in names if isinstance(text := content.get(name), str)}
    if not fields.keys() >= names - _OPTIONAL_FIELDS:
        return None
    if fields["SignatureVersion"] not in ("1", "2"):
        return None
    return SnsMessage(message_type, fields)
