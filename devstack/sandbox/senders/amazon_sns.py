"""Simulates Amazon SNS: signs messages, serves certificates, and confirms subscriptions.

The simulation serves a signing certificate, its issuer's certificate and the root certificate, each
at its own URL. The certificates are created on first use.
"""

import base64
import secrets
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from http import HTTPStatus
from typing import Annotated, Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.hashes import SHA1, SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import (
    AuthorityInformationAccessOID,
    ExtendedKeyUsageOID,
    NameOID,
)
from fastapi import APIRouter, Query, Response

REGION = "us-east-1"
TOPIC_ARN = f"arn:aws:sns:{REGION}:123456789012:pressroom"
CERTIFICATE_PATH = "/SimpleNotificationService-5a4d0b0c.pem"
CERTIFICATE_URL = f"https://sns.{REGION}.amazonaws.com{CERTIFICATE_PATH}"
ISSUER_PATH = "/issuer.cer"
ROOTS_PATH = "/roots.pem"

_LIFETIME = timedelta(days=365)
_NOTIFICATION_FIELDS = ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type")
_CONFIRMATION_FIELDS = (
    "Message",
    "MessageId",
    "SubscribeURL",
    "Timestamp",
    "Token",
    "TopicArn",
    "Type",
)

AuthorityKey = ec.EllipticCurvePrivateKey


@dataclass(frozen=True)
class SigningCertificates:
    """A chain of three certificates, and the private key of the signing certificate."""

    root: x509.Certificate
    issuer: x509.Certificate
    signer: x509.Certificate
    signing_key: rsa.RSAPrivateKey


def create_certificates(
    *,
    name: str = "sns.amazonaws.com",
    issuer_url: str = f"http://crt.sandbox.example{ISSUER_PATH}",
    signer_expires_at: datetime | None = None,
) -> SigningCertificates:
    now = datetime.now(UTC)
    root_key = ec.generate_private_key(ec.SECP256R1())
    root = _sign_authority("Sandbox Root", root_key, "Sandbox Root", root_key)
    issuer_key = ec.generate_private_key(ec.SECP256R1())
    issuer = _sign_authority("Sandbox Issuer", issuer_key, "Sandbox Root", root_key)
    signing_key = rsa.generate_private_key(65537, 2048)
    description = x509.AccessDescription(
        AuthorityInformationAccessOID.CA_ISSUERS, x509.UniformResourceIdentifier(issuer_url)
    )
    signer = (
        _build(name, signing_key.public_key(), "Sandbox Issuer", issuer_key)
        .not_valid_after(signer_expires_at or now + _LIFETIME)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.AuthorityInformationAccess([description]), critical=False)
        .sign(issuer_key, SHA256())
    )
    return SigningCertificates(root, issuer, signer, signing_key)


class SnsServer:
    def __init__(self) -> None:
        self.confirmed_topics: list[str] = []
        self._tokens: dict[str, str] = {}
        self._outages: Counter[str] = Counter()

    @cached_property
    def certificates(self) -> SigningCertificates:
        return create_certificates()

    def build_notification(
        self,
        message: str,
        *,
        topic_arn: str = TOPIC_ARN,
        version: str = "2",
        age: timedelta = timedelta(),
    ) -> dict[str, str]:
        fields = _build_fields("Notification", topic_arn, age)
        return self.sign({**fields, "Message": message}, version=version)

    def build_confirmation(
        self,
        message_type: str,
        *,
        topic_arn: str = TOPIC_ARN,
        version: str = "2",
        outages: int = 0,
        age: timedelta = timedelta(),
    ) -> dict[str, str]:
        """Return the fields of a signed message about a new or ended subscription to a topic.

        Args:
            message_type: ``SubscriptionConfirmation`` or ``UnsubscribeConfirmation``.
            outages: how many of Pressroom's attempts to confirm the subscription fail with 503.
        """
        token = secrets.token_hex(32)
        self._tokens[token] = topic_arn
        self._outages[token] = outages
        fields = _build_fields(message_type, topic_arn, age) | {
            "Message": "Visit the SubscribeURL.",
            # Pressroom must never request the ``SubscribeURL``, because a fake message could
            # contain any URL.
            "SubscribeURL": f"https://elsewhere.example/?Token={token}",
            "Token": token,
        }
        return self.sign(fields, version=version)

    def sign(self, fields: dict[str, str], *, version: str = "2") -> dict[str, str]:
        is_notification = fields["Type"] == "Notification"
        names = _NOTIFICATION_FIELDS if is_notification else _CONFIRMATION_FIELDS
        text = "".join(f"{name}\n{fields[name]}\n" for name in names if name in fields)
        algorithm = SHA1() if version == "1" else SHA256()  # noqa: S303 - like SNS
        key = self.certificates.signing_key
        signature = key.sign(text.encode(), padding.PKCS1v15(), algorithm)
        return fields | {
            "SignatureVersion": version,
            "Signature": base64.b64encode(signature).decode(),
            "SigningCertURL": CERTIFICATE_URL,
        }

    def fails(self, token: str) -> bool:
        """Return whether an attempt to confirm a subscription must fail, and count the attempt."""
        is_out = self._outages[token] > 0
        self._outages[token] -= is_out
        return is_out

    def confirm(self, topic_arn: str, token: str) -> bool:
        is_valid = self._tokens.get(token) == topic_arn
        if is_valid:
            self.confirmed_topics.append(topic_arn)
        return is_valid


def build_router(server: SnsServer) -> APIRouter:
    router = APIRouter()

    @router.get("/SimpleNotificationService-{name}.pem")
    async def signing_certificate(name: str) -> Response:
        if f"/SimpleNotificationService-{name}.pem" != CERTIFICATE_PATH:
            return Response(status_code=HTTPStatus.NOT_FOUND)
        return Response(server.certificates.signer.public_bytes(Encoding.PEM))

    @router.get(ISSUER_PATH)
    async def issuer_certificate() -> Response:
        return Response(server.certificates.issuer.public_bytes(Encoding.DER))

    @router.get(ROOTS_PATH)
    async def root_certificates() -> Response:
        return Response(server.certificates.root.public_bytes(Encoding.PEM))

    @router.get("/confirmed")
    async def confirmed_topics() -> list[str]:
        return server.confirmed_topics

    @router.get("/")
    async def confirm_subscription(
        action: Annotated[str, Query(alias="Action")],
        topic_arn: Annotated[str, Query(alias="TopicArn")],
        token: Annotated[str, Query(alias="Token")],
        protection: Annotated[str, Query(alias="AuthenticateOnUnsubscribe")] = "false",
    ) -> Response:
        if action != "ConfirmSubscription":
            return Response(status_code=HTTPStatus.BAD_REQUEST)
        if server.fails(token):
            return Response(status_code=HTTPStatus.SERVICE_UNAVAILABLE)
        if protection == "true":
            # Amazon SNS rejects ``AuthenticateOnUnsubscribe=true`` in requests that no AWS account
            # has signed.
            return Response(status_code=HTTPStatus.FORBIDDEN)
        is_confirmed = server.confirm(topic_arn, token)
        return Response(status_code=HTTPStatus.OK if is_confirmed else HTTPStatus.BAD_REQUEST)

    return router


def _build_fields(message_type: str, topic_arn: str, age: timedelta) -> dict[str, str]:
    moment = datetime.now(UTC) - age
    sent_at = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {
        "Type": message_type,
        "MessageId": secrets.token_hex(16),
        "TopicArn": topic_arn,
        "Timestamp": sent_at,
    }


def _sign_authority(
    name: str, key: AuthorityKey, issuer_name: str, issuer_key: AuthorityKey
) -> x509.Certificate:
    usage = dict.fromkeys(
        ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"), False
    ) | dict.fromkeys(("key_agreement", "encipher_only", "decipher_only"), False)
    key_usage: Any = x509.KeyUsage(**usage, key_cert_sign=True, crl_sign=True)
    return (
        _build(name, key.public_key(), issuer_name, issuer_key)
        .not_valid_after(datetime.now(UTC) + _LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(key_usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(issuer_key, SHA256())
    )


def _build(
    name: str,
    public_key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey,
    issuer_name: str,
    issuer_key: AuthorityKey,
) -> x509.CertificateBuilder:
    issuer_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer_name)]))
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - timedelta(days=30))
        .add_extension(issuer_id, critical=False)
    )
