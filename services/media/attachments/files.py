"""The stored objects of an attachment: their keys, and their encryption."""

from models import Attachment
from storage.encryption import WrappedKey, decrypt, encrypt
from storage.resources import Resources

ORIGINALS = "originals/"
MEDIA = "media/"


def original_key(attachment: Attachment) -> str:
    return ORIGINALS + attachment.hash_id


def media_key(attachment: Attachment) -> str:
    return MEDIA + attachment.filename


def wrapped_key(attachment: Attachment) -> WrappedKey | None:
    """Return the wrapped data key of an encrypted attachment; ``None`` for a plain one."""
    if attachment.wrapped_key is None or attachment.wrapped_by is None:
        return None
    return WrappedKey(attachment.wrapped_by, attachment.wrapped_key)


def data_key(resources: Resources, attachment: Attachment) -> bytes | None:
    """Return the key of an encrypted attachment's objects; ``None`` for a plain one."""
    wrapped = wrapped_key(attachment)
    return None if wrapped is None else resources.key_wrapper.unwrap(wrapped, attachment.hash_id)


def seal(plain: bytes, key: bytes | None, object_key: str) -> bytes:
    return plain if key is None else encrypt(plain, key, object_key)


def unseal(stored: bytes, key: bytes | None, object_key: str) -> bytes:
    return stored if key is None else decrypt(stored, key, object_key)
