import secrets

import pytest

from core.keyring import Key, Keyring
from storage.encryption import DecryptionFailed, KeyWrapper, WrappedKey, decrypt, encrypt


def keyring(*ids: str) -> Keyring:
    return Keyring([Key(key_id, key_id.encode().ljust(32, b".")) for key_id in ids])


def test_encrypted_object_with_any_flipped_bit_or_missing_end_is_rejected() -> None:
    key = secrets.token_bytes(32)
    sealed = encrypt(b"a picture", key, "media/x")
    assert decrypt(sealed, key, "media/x") == b"a picture"
    for position in range(len(sealed)):
        with pytest.raises(DecryptionFailed):
            decrypt(sealed[:position], key, "media/x")
        for bit in range(8):
            broken = bytearray(sealed)
            broken[position] ^= 1 << bit
            with pytest.raises(DecryptionFailed):
                decrypt(bytes(broken), key, "media/x")


def test_encrypted_object_moved_to_another_key_name_is_rejected() -> None:
    key = secrets.token_bytes(32)
    with pytest.raises(DecryptionFailed):
        decrypt(encrypt(b"a picture", key, "media/x"), key, "media/y")


def test_rotated_keyring_unwraps_old_keys_and_wraps_with_the_new_key() -> None:
    plain, wrapped = KeyWrapper(keyring("old")).create_key("x")
    rotated = KeyWrapper(keyring("new", "old"))
    assert rotated.unwrap(wrapped, "x") == plain
    assert rotated.create_key("x")[1].wrapped_by == "new"


def test_wrapped_key_opens_only_the_object_that_it_was_created_for() -> None:
    envelope = KeyWrapper(keyring("one"))
    _, wrapped = envelope.create_key("x")
    with pytest.raises(DecryptionFailed):
        envelope.unwrap(wrapped, "y")


def test_error_for_a_removed_encryption_key_names_the_key() -> None:
    _, wrapped = KeyWrapper(keyring("gone")).create_key("x")
    with pytest.raises(DecryptionFailed, match="gone"):
        KeyWrapper(keyring("other")).unwrap(WrappedKey("gone", wrapped.data), "x")
