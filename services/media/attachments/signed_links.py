"""Signed URLs of encrypted attachments, which their owners give to readers."""

from datetime import datetime, timedelta

from core.keyring import Keyring
from core.refusals.media import (
    MEDIA_NOT_FOUND,
    SIGNED_LINK_EXPIRES_IN,
    SIGNED_LINK_NOT_ENCRYPTED,
)
from core.signed_urls import SignedUrls
from models import Attachment
from services.media.attachments.files import file_named

MEDIA_URLS = SignedUrls("media-link", prefix="/media/")
MAX_LINK_LIFETIME = timedelta(days=7)


def create(
    keyring: Keyring,
    attachment: Attachment,
    filename: str,
    *,
    base: str,
    expires_in: int,
    now: datetime,
) -> tuple[str, datetime]:
    """Return an absolute URL of one of the attachment's files, and its expiry.

    Raises ``link.expires_in``, ``link.not_encrypted``, ``media.not_found``.
    """
    max_seconds = int(MAX_LINK_LIFETIME.total_seconds())
    if not 1 <= expires_in <= max_seconds:
        raise SIGNED_LINK_EXPIRES_IN(longest=max_seconds)
    if not attachment.encrypted:
        raise SIGNED_LINK_NOT_ENCRYPTED()
    if file_named(attachment, filename) is None:
        raise MEDIA_NOT_FOUND()
    lifetime = timedelta(seconds=expires_in)
    return MEDIA_URLS.create(keyring, filename, base=base, lifetime=lifetime, now=now)
