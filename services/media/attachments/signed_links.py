"""Signed URLs of encrypted attachments, which their owner hands out."""

from datetime import datetime, timedelta

from core.keyring import Keyring
from core.refusals.media import SIGNED_LINK_EXPIRES_IN, SIGNED_LINK_NOT_ENCRYPTED
from core.signed_urls import SignedUrls
from models import Attachment

MEDIA_URLS = SignedUrls("media-link", prefix="/media/")
MAX_LINK_LIFETIME = timedelta(days=7)


def create(
    keyring: Keyring, attachment: Attachment, *, base: str, expires_in: int, now: datetime
) -> tuple[str, datetime]:
    """An absolute URL and when it ends; raises ``link.expires_in``, ``link.not_encrypted``."""
    longest = int(MAX_LINK_LIFETIME.total_seconds())
    if not 1 <= expires_in <= longest:
        raise SIGNED_LINK_EXPIRES_IN(longest=longest)
    if not attachment.encrypted:
        raise SIGNED_LINK_NOT_ENCRYPTED()
    lifetime = timedelta(seconds=expires_in)
    return MEDIA_URLS.create(keyring, attachment.filename, base=base, lifetime=lifetime, now=now)
