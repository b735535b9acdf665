"""The stored objects of an attachment: their names, and the key that encrypts them."""

from models import Attachment
from storage.encryption import WrappedKey
from storage.resources import Resources

ORIGINALS = "originals/"
MEDIA = "media/"


def original_key(attachment: Attachment) -> str:
    return ORIGINALS + attachment.hash_id


def media_key(attachment: Attachment) -> str:
    return MEDIA + attachment.filename


def data_key(resources: Resources, attachment: Attachment) -> bytes | None:
    """Return the key of an encrypted attachment's objects; ``None`` for a plain one."""
    if attachment.wrapped_key is None or attachment.wrapped_by is None:
        return None
    wrapped = WrappedKey(attachment.wrapped_by, attachment.wrapped_key)
    return resources.key_wrapper.unwrap(wrapped, attachment.hash_id)
