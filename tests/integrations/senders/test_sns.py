import asyncio
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from fastapi import Response

from core.errors import DomainError
from devstack.sandbox.senders.amazon_sns import (
    CERTIFICATE_PATH,
    CERTIFICATE_URL,
    ISSUER_PATH,
    ROOTS_PATH,
    TOPIC_ARN,
    create_certificates,
)
from integrations.http_client import AsyncHttpClient, HttpHeaders, HttpReply
from integrations.senders import sns_certificates
from integrations.senders.certificate_chains import load_system_roots
from integrations.senders.port import SenderProof, SenderRequest
from integrations.senders.ses import SesAdapter
from integrations.senders.sns_certificates import SnsCertificates
from integrations.senders.sns_topics import parse_topic
from tests.support.senders.adapters import verify, verify_request
from tests.support.senders.sns import FaultySns
from tests.support.stack.given_settings import settings

INVALID = "sender.signature_invalid"
BUSY = "sender.busy"


def verify_fields(
    sns: FaultySns,
    fields: Mapping[str, Any],
    *,
    topic_arn: str | None = TOPIC_ARN,
    received_at: datetime | None = None,
    adapter: SesAdapter | None = None,
) -> str | None:
    """Return the code of the adapter's error, or ``None`` if the adapter accepts the message."""
    return verify(
        adapter or SesAdapter(sns.base_url),
        orjson.dumps(fields),
        {},
        topic_arn=topic_arn,
        received_at=received_at or datetime.now(UTC),
    )


def notify_at(sns: FaultySns, moment: datetime) -> dict[str, str]:
    """Return a notification that SNS sent at ``moment``."""
    return sns.server.build_notification("{}", age=datetime.now(UTC) - moment)


@pytest.mark.parametrize("version", ["1", "2"])
def test_signed_sns_message_of_each_type_is_accepted(sns: FaultySns, version: str) -> None:
    notification = sns.server.build_notification("{}", version=version)
    subject = sns.server.sign(notification | {"Subject": "Amazon\nSES"}, version=version)
    for fields in (
        notification,
        {**notification, "Subject": None},
        subject,
        sns.server.build_confirmation("SubscriptionConfirmation", version=version),
        sns.server.build_confirmation("UnsubscribeConfirmation", version=version),
    ):
        assert verify_fields(sns, fields) is None


def test_sns_message_with_an_altered_field_is_rejected(sns: FaultySns) -> None:
    for fields in (
        sns.server.sign(sns.server.build_notification("{}") | {"Subject": "x"}),
        sns.server.build_confirmation("SubscriptionConfirmation"),
    ):
        for name in fields:
            assert verify_fields(sns, {**fields, name: fields[name] + "0"}) == INVALID
            if name != "Subject":
                assert verify_fields(sns, {**fields, name: None}) == INVALID
        assert verify_fields(sns, fields) is None


@pytest.mark.parametrize(("version", "other_version"), [("1", "2"), ("2", "1")])
def test_signature_of_one_version_is_invalid_as_the_other(
    sns: FaultySns, version: str, other_version: str
) -> None:
    fields = sns.server.build_notification("{}", version=version)
    assert verify_fields(sns, fields | {"SignatureVersion": other_version}) == INVALID
    assert verify_fields(sns, fields | {"SignatureVersion": "3"}) == INVALID


def test_genuine_message_of_another_topic_is_rejected_before_any_call(sns: FaultySns) -> None:
    other_topic_arn = f"{TOPIC_ARN}s"
    fields = sns.server.build_notification("{}", topic_arn=other_topic_arn)
    for topic_arn in (TOPIC_ARN, TOPIC_ARN.upper(), None, ""):
        assert verify_fields(sns, fields, topic_arn=topic_arn) == INVALID
    assert sns.paths == []
    assert verify_fields(sns, fields, topic_arn=other_topic_arn) is None


@pytest.mark.parametrize(
    "url",
    [
        "",
        CERTIFICATE_PATH,
        f"http://sns.us-east-1.amazonaws.com{CERTIFICATE_PATH}",
        f"https://sns.eu-west-1.amazonaws.com{CERTIFICATE_PATH}",
        f"https://sns.us-east-1.amazonaws.com.cn{CERTIFICATE_PATH}",
        f"https://sns.us-east-1.amazonaws.com:8443{CERTIFICATE_PATH}",
        f"https://sns.us-east-1.amazonaws.com@evil.example{CERTIFICATE_PATH}",
        f"https://sns.us-east-1.amazonaws.com.evil.example{CERTIFICATE_PATH}",
        f"https://evil.example/sns.us-east-1.amazonaws.com{CERTIFICATE_PATH}",
        f"https://sns.s3.amazonaws.com{CERTIFICATE_PATH}",
        f"https://sns.us-east-1.amazonaws.com/bucket{CERTIFICATE_PATH}",
        f"https://sns.us-east-1.amazonaws.com{CERTIFICATE_PATH}?x=1",
        f"https://sns.us-east-1.amazonaws.com{CERTIFICATE_PATH}\n",
        "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-.pem",
        "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-xyz.pem",
        "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-../a.pem",
    ],
)
def test_certificate_is_fetched_only_from_sns_in_the_region_of_the_topic(
    sns: FaultySns, url: str
) -> None:
    fields = sns.server.build_notification("{}")
    assert verify_fields(sns, fields | {"SigningCertURL": url}) == INVALID
    assert sns.paths == []


@pytest.mark.parametrize(
    ("arn", "host"),
    [
        ("arn:aws:sns:us-east-1:123456789012:letters", "sns.us-east-1.amazonaws.com"),
        ("arn:aws:sns:ap-southeast-4:123456789012:a_B-1", "sns.ap-southeast-4.amazonaws.com"),
        ("arn:aws-us-gov:sns:us-gov-west-1:123456789012:a", "sns.us-gov-west-1.amazonaws.com"),
        ("arn:aws-cn:sns:cn-north-1:123456789012:a", "sns.cn-north-1.amazonaws.com.cn"),
        ("arn:aws:sns:cn-north-1:123456789012:a", None),
        ("arn:aws-cn:sns:us-east-1:123456789012:a", None),
        ("arn:aws:sns:s3:123456789012:a", None),
        ("arn:aws:sns:evil.example/:123456789012:a", None),
        ("arn:aws:sns:us-east-1:123456789012:letters.fifo", None),
        ("arn:aws:sns:us-east-1:123456789012:a:subscription-id", None),
        ("arn:aws:sns:us-east-1:123:a", None),
        ("arn:aws:sqs:us-east-1:123456789012:a", None),
        ("", None),
    ],
)
def test_only_the_arn_of_a_standard_topic_is_accepted(arn: str, host: str | None) -> None:
    topic = parse_topic(arn)
    assert (topic.host if topic else None) == host


def test_certificate_is_fetched_without_its_issuers_and_cached_for_a_day(sns: FaultySns) -> None:
    adapter = SesAdapter(sns.base_url)
    now = datetime.now(UTC)
    chain = [CERTIFICATE_PATH, ROOTS_PATH, ISSUER_PATH]
    for hours, count in ((0, 1), (23, 1), (25, 2)):
        moment = now + timedelta(hours=hours)
        fields = notify_at(sns, moment)
        assert verify_fields(sns, fields, received_at=moment, adapter=adapter) is None
        assert sns.paths == chain * count


def test_concurrent_messages_share_one_request_per_region(sns: FaultySns) -> None:
    adapter = SesAdapter(sns.base_url)
    body = orjson.dumps(sns.server.build_notification("{}"))
    request = SenderRequest({}, body, datetime.now(UTC))
    proof = SenderProof((), TOPIC_ARN)

    async def verify_all() -> None:
        await asyncio.gather(*(verify_request(adapter, request, proof) for _ in range(20)))

    asyncio.run(verify_all())
    assert len(sns.paths) == 3


OTHER_TOPIC_ARN = f"{TOPIC_ARN}-other"


def invent_certificate(fields: Mapping[str, str], number: int) -> dict[str, str]:
    """Return a forged SNS message for another topic, with the URL of a nonexistent certificate."""
    path = f"/SimpleNotificationService-{number:x}.pem"
    url = f"https://sns.us-east-1.amazonaws.com{path}"
    return {**fields, "TopicArn": OTHER_TOPIC_ARN, "SigningCertURL": url}


def verify_together(
    adapter: SesAdapter, messages: list[dict[str, str]], received_at: datetime | None = None
) -> list[str | None]:
    """Verify all messages at the same time. Return each message's error code, or ``None``."""

    async def verify_one(fields: dict[str, str]) -> str | None:
        request = SenderRequest({}, orjson.dumps(fields), received_at or datetime.now(UTC))
        try:
            await verify_request(adapter, request, SenderProof((), fields["TopicArn"]))
        except DomainError as error:
            return error.code
        return None

    async def verify_all() -> list[str | None]:
        return await asyncio.gather(*map(verify_one, messages))

    return asyncio.run(verify_all())


def test_invented_certificates_of_one_topic_dont_delay_another_topic(
    sns: FaultySns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sns_certificates, "_MAX_SECONDS", 2.0)
    genuine = sns.server.build_notification("{}")
    invented = [invent_certificate(genuine, number) for number in range(20)]
    sns.slow_paths.update(
        fields["SigningCertURL"].removeprefix("https://sns.us-east-1.amazonaws.com")
        for fields in invented
    )
    codes = verify_together(SesAdapter(sns.base_url), [*invented, genuine])
    assert codes == [INVALID, *[BUSY] * 19, None]
    assert len(sns.paths) == 4


def test_too_many_messages_of_a_topic_are_busy(
    sns: FaultySns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sns_certificates, "_MAX_WAITING_PER_TOPIC", 2)
    genuine = sns.server.build_notification("{}")
    assert verify_together(SesAdapter(sns.base_url), [genuine] * 3) == [None, None, BUSY]


def test_refused_certificate_is_fetched_again_after_a_minute(
    sns: FaultySns, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = SesAdapter(sns.base_url)
    genuine = sns.server.build_notification("{}")
    now = datetime.now(UTC)

    def count_requests(number: int, seconds: int = 0) -> int:
        sns.paths.clear()
        moment = now + timedelta(seconds=seconds)
        assert verify_together(adapter, [invent_certificate(genuine, number)], moment) == [INVALID]
        return len(sns.paths)

    assert [count_requests(1, seconds) for seconds in (0, 59, 61)] == [1, 0, 1]
    # Only a limited number of rejected URLs is stored, so that fake URLs can't fill the memory.
    monkeypatch.setattr(sns_certificates, "_MAX_REFUSED_URLS", 2)
    assert [count_requests(number, 61) for number in (1, 2, 3, 3, 1)] == [0, 1, 1, 0, 1]


def test_cached_certificate_is_used_while_sns_is_unreachable(
    sns: FaultySns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sns_certificates, "_MAX_SECONDS", 0.2)
    now = datetime.now(UTC)
    sns.server.certificates = create_certificates(signer_expires_at=now + timedelta(hours=26))
    adapter = SesAdapter(sns.base_url)
    fields = sns.server.build_notification("{}")
    assert verify_fields(sns, fields, received_at=now, adapter=adapter) is None
    sns.slow_paths.add(CERTIFICATE_PATH)
    later = now + timedelta(hours=25)
    fields = notify_at(sns, later)
    sns.paths.clear()
    # For five simultaneous messages, Pressroom requests the certificate from SNS only once.
    assert verify_together(adapter, [fields] * 5, later) == [None] * 5
    assert sns.paths == [CERTIFICATE_PATH]
    later = now + timedelta(hours=27)
    assert verify_together(adapter, [notify_at(sns, later)] * 5, later) == [BUSY] * 5
    sns.slow_paths.clear()
    sns.replies[CERTIFICATE_PATH] = Response(status_code=404)
    later = now + timedelta(hours=25)
    assert verify_together(adapter, [notify_at(sns, later)], later) == [INVALID]


def test_cached_certificate_expires(sns: FaultySns) -> None:
    now = datetime.now(UTC)
    sns.server.certificates = create_certificates(signer_expires_at=now + timedelta(hours=1))
    adapter = SesAdapter(sns.base_url)
    fields = sns.server.build_notification("{}")
    assert verify_fields(sns, fields, received_at=now, adapter=adapter) is None
    later = now + timedelta(hours=2)
    fields = notify_at(sns, later)
    assert verify_fields(sns, fields, received_at=later, adapter=adapter) == INVALID


@pytest.mark.parametrize(
    ("age", "code"),
    [
        (timedelta(hours=1, minutes=59), None),
        (timedelta(hours=2, minutes=1), INVALID),
        (timedelta(days=2), INVALID),
        (-timedelta(hours=3), INVALID),
    ],
)
def test_sns_message_is_valid_for_two_hours(
    sns: FaultySns, age: timedelta, code: str | None
) -> None:
    for fields in (
        sns.server.build_notification("{}", age=age),
        sns.server.build_confirmation("SubscriptionConfirmation", age=age),
        sns.server.build_confirmation("UnsubscribeConfirmation", age=age),
    ):
        assert verify_fields(sns, fields) == code


@pytest.mark.parametrize("timestamp", ["", "now", "2026-11-29T10:12:00", "1795947072"])
def test_sns_message_without_a_readable_time_is_rejected(sns: FaultySns, timestamp: str) -> None:
    fields = sns.server.sign(sns.server.build_notification("{}") | {"Timestamp": timestamp})
    assert verify_fields(sns, fields) == INVALID


FOREIGN_CERTIFICATES = create_certificates()
CERTIFICATES_OF_MAIL_SERVER = create_certificates(name="mail.example.com")
CERTIFICATES_WITHOUT_ISSUER = create_certificates(issuer_url="http://127.0.0.1/issuer.cer")


def respond(certificate: Any, encoding: Encoding = Encoding.PEM) -> Response:
    return Response(certificate.public_bytes(encoding))


UNTRUSTED_REPLIES: list[dict[str, Response]] = [
    {
        CERTIFICATE_PATH: respond(FOREIGN_CERTIFICATES.signer),
        ISSUER_PATH: respond(FOREIGN_CERTIFICATES.issuer, Encoding.DER),
    },
    {CERTIFICATE_PATH: Response(b"no certificate")},
    {CERTIFICATE_PATH: Response(b"-----BEGIN CERTIFICATE-----")},
    {CERTIFICATE_PATH: Response(status_code=404)},
    {ROOTS_PATH: respond(FOREIGN_CERTIFICATES.root)},
]


@pytest.mark.parametrize("replies", UNTRUSTED_REPLIES, ids=range(5))
def test_certificate_without_a_chain_to_a_root_is_rejected(
    sns: FaultySns, replies: dict[str, Response]
) -> None:
    fields = sns.server.build_notification("{}")
    sns.replies.update(replies)
    assert verify_fields(sns, fields) == INVALID
    assert set(sns.paths) <= {CERTIFICATE_PATH, ROOTS_PATH, ISSUER_PATH}
    assert len(sns.paths) <= 5


USELESS_ISSUER_REPLIES = [
    *(Response(status_code=status) for status in (302, 403, 404)),
    respond(FOREIGN_CERTIFICATES.issuer, Encoding.DER),
    # A certificate that may only sign messages, but can't issue other certificates.
    respond(FOREIGN_CERTIFICATES.signer, Encoding.DER),
    Response(b"<html>Sign in</html>"),
    Response(b"\n" * 16_385),
]


@pytest.mark.parametrize("reply", USELESS_ISSUER_REPLIES, ids=range(7))
def test_message_is_busy_after_a_useless_reply_of_the_issuers_server(
    sns: FaultySns, reply: Response
) -> None:
    adapter = SesAdapter(sns.base_url)
    fields = sns.server.build_notification("{}")
    sns.replies[ISSUER_PATH] = reply
    assert verify_fields(sns, fields, adapter=adapter) == BUSY
    assert sns.paths == [CERTIFICATE_PATH, ROOTS_PATH, ISSUER_PATH]
    sns.replies.clear()
    assert verify_fields(sns, fields, adapter=adapter) is None


@pytest.mark.parametrize(
    ("old_bytes", "new_bytes"),
    [
        # Change the version number in the certificate.
        ("a003020102", "a003020103"),
        # Change the type of the public key in the certificate.
        ("2a8648ce3d0201", "2a8648ce3d027f"),
    ],
)
def test_message_is_busy_if_the_issuers_certificate_has_an_unknown_format(
    sns: FaultySns, old_bytes: str, new_bytes: str
) -> None:
    fields = sns.server.build_notification("{}")
    content = sns.certificates.issuer.public_bytes(Encoding.DER)
    assert bytes.fromhex(old_bytes) in content
    content = content.replace(bytes.fromhex(old_bytes), bytes.fromhex(new_bytes))
    sns.replies[ISSUER_PATH] = Response(content)
    assert verify_fields(sns, fields) == BUSY


@pytest.mark.parametrize(
    ("addresses", "code"),
    [
        (["192.88.98.1"], None),
        (["10.0.0.1"], BUSY),
        (["192.88.98.1", "169.254.169.254"], BUSY),
        (["::1"], BUSY),
        ([], BUSY),
    ],
)
def test_issuers_server_is_called_only_at_its_checked_public_address(
    sns: FaultySns, monkeypatch: pytest.MonkeyPatch, addresses: list[str], code: str | None
) -> None:
    certificates = sns.certificates
    calls = []

    async def send(
        client: AsyncHttpClient, method: str, url: str, headers: Mapping[str, str] | None = None
    ) -> HttpReply:
        calls.append((method, url, headers))
        is_issuer = url.endswith(ISSUER_PATH)
        certificate = certificates.issuer if is_issuer else certificates.signer
        return HttpReply(200, HttpHeaders(), certificate.public_bytes(Encoding.DER))

    monkeypatch.setattr(AsyncHttpClient, "send", send)
    monkeypatch.setattr(sns_certificates, "load_system_roots", lambda: (certificates.root,))
    topic = parse_topic(TOPIC_ARN)
    assert topic is not None
    own_certificates = SnsCertificates(resolve=lambda _host, _port: addresses)
    find_key = own_certificates.find_key(topic, CERTIFICATE_URL, datetime.now(UTC))
    if code is None:
        asyncio.run(find_key)
        url = f"http://{addresses[0]}:80{ISSUER_PATH}"
        assert calls[1:] == [("GET", url, {"Host": "crt.sandbox.example"})]
    else:
        with pytest.raises(DomainError) as raised:
            asyncio.run(find_key)
        assert raised.value.code == code
        assert calls == [("GET", CERTIFICATE_URL, None)]


def test_certificate_in_a_redirect_or_a_long_reply_is_rejected(sns: FaultySns) -> None:
    fields = sns.server.build_notification("{}")
    content = sns.server.certificates.signer.public_bytes(Encoding.PEM)
    sns.replies[CERTIFICATE_PATH] = Response(content + b"\n" * 10_000)
    assert verify_fields(sns, fields) is None
    for reply in (
        Response(content, status_code=302, headers={"Location": f"/sns{CERTIFICATE_PATH}"}),
        Response(content + b"\n" * 16_384),
    ):
        sns.replies[CERTIFICATE_PATH] = reply
        assert verify_fields(sns, fields) == INVALID


@pytest.mark.parametrize("certificates", [CERTIFICATES_OF_MAIL_SERVER, CERTIFICATES_WITHOUT_ISSUER])
def test_certificate_of_another_name_or_without_issuer_is_rejected(
    sns: FaultySns, certificates: Any
) -> None:
    sns.server.certificates = certificates
    assert verify_fields(sns, sns.server.build_notification("{}")) == INVALID


@pytest.mark.parametrize("days", [-40, 400])
def test_certificate_outside_of_its_lifetime_is_rejected(sns: FaultySns, days: int) -> None:
    received_at = datetime.now(UTC) + timedelta(days=days)
    fields = notify_at(sns, received_at)
    assert verify_fields(sns, fields, received_at=received_at) == INVALID


@pytest.mark.parametrize("path", [CERTIFICATE_PATH, ROOTS_PATH, ISSUER_PATH])
@pytest.mark.parametrize("status", [500, 503, 429])
def test_message_during_an_outage_of_sns_is_busy(sns: FaultySns, path: str, status: int) -> None:
    adapter = SesAdapter(sns.base_url)
    fields = sns.server.build_notification("{}")
    sns.replies[path] = Response(status_code=status)
    assert verify_fields(sns, fields, adapter=adapter) == BUSY
    sns.replies.clear()
    assert verify_fields(sns, fields, adapter=adapter) is None


def test_message_is_busy_if_sns_hangs_or_is_unreachable(
    sns: FaultySns, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = sns.server.build_notification("{}")
    assert verify_fields(sns, fields, adapter=SesAdapter("http://127.0.0.1:9")) == BUSY
    sns.slow_paths.add(CERTIFICATE_PATH)
    monkeypatch.setattr(sns_certificates, "_MAX_SECONDS", 0.2)
    assert verify_fields(sns, fields) == BUSY


@pytest.fixture
def fresh_roots() -> Iterator[None]:
    """Clear the cache of the system's root certificates before and after the test."""
    load_system_roots.cache_clear()
    yield
    load_system_roots.cache_clear()


@pytest.mark.usefixtures("fresh_roots")
def test_root_certificates_are_those_of_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = FOREIGN_CERTIFICATES.root.public_bytes(Encoding.PEM)
    (tmp_path / "roots.pem").write_bytes(root)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "roots.pem"))
    assert load_system_roots() == (FOREIGN_CERTIFICATES.root,)
    # OpenSSL also reads a folder with one root certificate per file, such as `5ed36f99.0`.
    (tmp_path / "5ed36f99.0").write_bytes(root)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "missing.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    load_system_roots.cache_clear()
    assert load_system_roots() == (FOREIGN_CERTIFICATES.root,)


@pytest.mark.usefixtures("fresh_roots")
def test_root_certificates_are_loaded_once_per_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roots = load_system_roots()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "missing.pem"))
    assert load_system_roots() is roots


def test_only_a_server_on_this_machine_can_replace_amazons_servers() -> None:
    for url in ("http://127.0.0.1:4000/sns", "http://localhost:4000", "http://[::1]:4000"):
        assert settings(sns_base_url=url).sns_base_url
    for url in ("https://sns.us-east-1.amazonaws.com", "http://192.0.2.1", "http://sandbox"):
        with pytest.raises(ValueError, match="sns_base_url"):
            settings(sns_base_url=url)
