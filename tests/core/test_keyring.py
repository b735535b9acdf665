import base64
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.keyring import Keyring, Signer


def written(key_id: str, size: int = 32) -> str:
    secret = hashlib.sha512(key_id.encode()).digest()[:size]
    return f"{key_id}:{base64.urlsafe_b64encode(secret).decode().rstrip('=')}"


def test_what_an_old_key_signed_is_still_recognised_after_rotation() -> None:
    old = written("k1")
    before = Signer(Keyring.parse(old), "api-key")
    after = Signer(Keyring.parse(f"{written('k2')},{old}"), "api-key")
    assert before.digest(b"message") in after.digests(b"message")
    assert after.digest(b"message") != before.digest(b"message")


def test_each_purpose_has_a_key_of_its_own() -> None:
    keyring = Keyring.parse(written("k1"))
    assert Signer(keyring, "api-key").digest(b"m") != Signer(keyring, "trace").digest(b"m")


@pytest.mark.parametrize(
    "text",
    ["", "k1", "k1:", ":abc", "k 1:abc", written("k1", 16), f"{written('k')},{written('k')}"],
)
def test_a_keyring_that_is_wrong_says_why_without_its_secret(text: str) -> None:
    with pytest.raises(ValueError, match=r"key|id") as caught:
        Keyring.parse(text)
    for secret in text.replace(",", ":").split(":")[1::2]:
        assert not secret or secret not in str(caught.value)


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        Keyring.parse(text)
    except ValueError:
        return
