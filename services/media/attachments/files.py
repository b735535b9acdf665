"""Where an attachment's bytes rest, and in which form."""

from models import Attachment
from storage.encryption import WrappedKey, decrypt, encrypt
from storage.resources import Resources

ORIGINALS = "originals/"
MEDIA = "media/"


def original_key(attachment: Attachment) -> str:
    return ORIGINALS + attachment.hash_id


def media_key(attachment: Attachment) -> str:
    return MEDIA + attachment.filename


def data_key(resources: Resources, attachment: Attachment) -> bytes | None:
    """The key of an encrypted attachment's bytes; ``None`` when they are plain."""
    if attachment.wrapped_key is None or attachment.wrapped_by is None:
        return None
    wrapped = WrappedKey(attachment.wrapped_by, attachment.wrapped_key)
    return resources.key_wrapper.unwrap(wrapped, attachment.hash_id)


def seal(plain: bytes, key: bytes | None, object_key: str) -> bytes:
    return plain if key is None else encrypt(plain, key, object_key)


def unseal(stored: bytes, key: bytes | None, object_key: str) -> bytes:
    return stored if key is None else decrypt(stored, key, object_key)
