"""Links that show an encrypted file to whoever has them, for a while."""

import re
from datetime import datetime, timedelta

from core.keyring import Keyring, Signer
from core.refusals.media import SIGNED_LINK_EXPIRES_IN, SIGNED_LINK_NOT_ENCRYPTED
from models import Attachment

MAX_LINK_LIFETIME = timedelta(days=7)
_SECONDS = re.compile(r"[0-9]{1,12}\Z")


def signer(keyring: Keyring) -> Signer:
    return Signer(keyring, "media-link")


def create(
    signer: Signer, attachment: Attachment, *, base: str, expires_in: int, now: datetime
) -> tuple[str, datetime]:
    """An absolute URL and when it ends; raises ``link.expires_in``, ``link.not_encrypted``."""
    longest = int(MAX_LINK_LIFETIME.total_seconds())
    if not 1 <= expires_in <= longest:
        raise SIGNED_LINK_EXPIRES_IN(longest=longest)
    if not attachment.encrypted:
        raise SIGNED_LINK_NOT_ENCRYPTED()
    expires = int(now.timestamp()) + expires_in
    signature = signer.sign(_signed(attachment.filename, expires))
    url = f"{base}/media/{attachment.filename}?expires={expires}&signature={signature}"
    return url, datetime.fromtimestamp(expires, tz=now.tzinfo)


def opens(signer: Signer, filename: str, *, expires: str, signature: str, now: datetime) -> bool:
    """Whether a link's query is ours, for this file, and still lasts."""
    if not _SECONDS.match(expires):
        return False
    signed = signer.verify(_signed(filename, int(expires)), signature)
    return signed and now.timestamp() < int(expires)


def _signed(filename: str, expires: int) -> bytes:
    return f"{filename}\n{expires}".encode()
