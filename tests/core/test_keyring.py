import base64
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.keyring import Keyring, Signer


def build_key_text(key_id: str, size: int = 32) -> str:
    secret = hashlib.sha512(key_id.encode()).digest()[:size]
    return f"{key_id}:{base64.urlsafe_b64encode(secret).decode().rstrip('=')}"


def test_signature_of_old_key_is_still_recognised_after_key_rotation() -> None:
    old = build_key_text("k1")
    before = Signer(Keyring.parse(old), "api-key")
    after = Signer(Keyring.parse(f"{build_key_text('k2')},{old}"), "api-key")
    assert before.digest(b"message") in after.digests(b"message")
    assert after.digest(b"message") != before.digest(b"message")


def test_signing_keys_differ_between_purposes() -> None:
    keyring = Keyring.parse(build_key_text("k1"))
    assert Signer(keyring, "api-key").digest(b"m") != Signer(keyring, "trace").digest(b"m")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "k1",
        "k1:",
        ":abc",
        "k 1:abc",
        build_key_text("k1", 16),
        f"{build_key_text('k')},{build_key_text('k')}",
    ],
)
def test_malformed_keyring_is_rejected_without_showing_its_secrets(text: str) -> None:
    with pytest.raises(ValueError, match=r"key|id") as caught:
        Keyring.parse(text)
    for secret in text.replace(",", ":").split(":")[1::2]:
        assert not secret or secret not in str(caught.value)


@given(st.text(max_size=80))
def test_keyring_parser_accepts_or_rejects_any_text_without_crashing(text: str) -> None:
    try:
        Keyring.parse(text)
    except ValueError:
        return
