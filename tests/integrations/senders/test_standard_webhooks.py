import base64
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest
from standardwebhooks import Webhook

from core.errors import DomainError
from integrations.senders.port import SenderRequest
from integrations.senders.standard_webhooks import (
    STANDARD_HEADERS,
    SVIX_HEADERS,
    SignatureHeaders,
    is_signing_secret,
    verify_message,
)

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()
FORMER_SECRET = "whsec_" + base64.b64encode(b"f" * 32).decode()
FOREIGN_SECRET = "whsec_" + base64.b64encode(b"x" * 32).decode()
BODY = '{"name": "Zoë"}'.encode()


def sign(
    *,
    secret: str = SECRET,
    sent_at: datetime = NOW,
    body: bytes = BODY,
    names: SignatureHeaders = STANDARD_HEADERS,
) -> dict[str, str]:
    return {
        names.message_id: "msg_1",
        names.timestamp: str(int(sent_at.timestamp())),
        names.signatures: Webhook(secret).sign("msg_1", sent_at, body.decode()),
    }


def is_accepted(
    headers: Mapping[str, str],
    *,
    body: bytes = BODY,
    secrets: tuple[str, ...] = (SECRET,),
    names: SignatureHeaders = STANDARD_HEADERS,
) -> bool:
    try:
        verify_message(SenderRequest(headers, body, NOW), secrets, names)
    except DomainError as error:
        return error.code != "sender.signature_invalid"
    return True


@pytest.mark.parametrize("names", [STANDARD_HEADERS, SVIX_HEADERS])
def test_signed_message_is_accepted_under_its_own_header_names(names: SignatureHeaders) -> None:
    [other_names] = {STANDARD_HEADERS, SVIX_HEADERS} - {names}
    headers = sign(names=names)
    assert is_accepted(headers, names=names)
    assert not is_accepted(headers, names=other_names)


def test_each_secret_of_the_sender_verifies_a_message() -> None:
    for secret in (SECRET, FORMER_SECRET):
        assert is_accepted(sign(secret=secret), secrets=(SECRET, FORMER_SECRET))
    assert not is_accepted(sign(secret=FOREIGN_SECRET), secrets=(SECRET, FORMER_SECRET))
    assert not is_accepted(sign(), secrets=())


def test_one_valid_signature_of_several_is_enough() -> None:
    valid = sign()
    invalid_signatures = f"v1a,AAAA v1 {sign(secret=FOREIGN_SECRET)['webhook-signature']}"
    signatures = valid["webhook-signature"]
    assert is_accepted(valid | {"webhook-signature": f"{invalid_signatures} {signatures}"})
    assert not is_accepted(valid | {"webhook-signature": invalid_signatures})


def test_message_with_an_altered_part_is_rejected() -> None:
    valid = sign()
    assert not is_accepted(valid, body=BODY + b" ")
    assert not is_accepted(valid | {"webhook-id": "msg_2"})
    assert not is_accepted(valid | {"webhook-timestamp": str(int(NOW.timestamp()) + 1)})
    for name in valid:
        assert not is_accepted({key: text for key, text in valid.items() if key != name})


@pytest.mark.parametrize(("seconds", "is_valid"), [(-301, False), (-300, True), (300, True)])
def test_message_is_valid_for_five_minutes(*, seconds: int, is_valid: bool) -> None:
    assert is_accepted(sign(sent_at=NOW + timedelta(seconds=seconds))) is is_valid


def test_message_from_the_future_is_rejected() -> None:
    assert not is_accepted(sign(sent_at=NOW + timedelta(seconds=301)))


@pytest.mark.parametrize("timestamp", ["", "x", "-1", "1e9", "nan", "٣", "9" * 11, "9" * 5000])
def test_unreadable_timestamp_is_rejected(timestamp: str) -> None:
    assert not is_accepted(sign() | {"webhook-timestamp": timestamp})


def test_unreadable_bytes_are_rejected() -> None:
    assert not is_accepted(sign(), body=b"\xff")
    assert not is_accepted(sign() | {"webhook-id": "\udcff"})
    assert not is_accepted(sign() | {"webhook-signature": "v1,ÿ\udcff"})


@pytest.mark.parametrize(("count", "is_valid"), [(1, False), (23, False), (24, True)])
def test_secret_with_a_guessable_key_verifies_nothing(*, count: int, is_valid: bool) -> None:
    secret = "whsec_" + base64.b64encode(bytes(count)).decode()
    assert is_signing_secret(secret) is is_valid
    assert is_accepted(sign(secret=secret), secrets=(secret,)) is is_valid


def test_message_without_an_id_is_rejected() -> None:
    signature = Webhook(SECRET).sign("", NOW, BODY.decode())
    headers = sign() | {"webhook-signature": signature}
    assert not is_accepted(headers | {"webhook-id": ""})
    del headers["webhook-id"]
    assert not is_accepted(headers)


def test_only_a_secret_in_standard_webhooks_format_is_a_signing_secret() -> None:
    assert is_signing_secret(SECRET)
    for text in ("", "whsec_", "whsec_ü", "whsec_A", SECRET.removeprefix("whsec_")):
        assert not is_signing_secret(text)
    # After the prefix, a secret may contain only characters of the standard base64 alphabet.
    for text in ("ab-_" * 10, f"{'YWJj' * 10} ", f"{'YWJj' * 5}!{'YWJj' * 5}", f"{'YWJj' * 10}A"):
        assert not is_signing_secret(f"whsec_{text}")
    # If a sender has an invalid and a valid secret, Pressroom accepts requests that are signed with
    # the valid secret.
    assert is_accepted(sign(), secrets=("whsec_A", SECRET))
