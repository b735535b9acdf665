"""Links that show an encrypted file to whoever has them, for a while."""

import re
from datetime import datetime, timedelta

from core.errors import conflict, invalid
from core.keyring import Keyring
from models import Attachment

MAX_LINK_LIFETIME = timedelta(days=7)
_PURPOSE = "media-link"
_SECONDS = re.compile(r"[0-9]{1,12}\Z")


def create(
    keyring: Keyring, attachment: Attachment, *, base: str, expires_in: int, now: datetime
) -> tuple[str, datetime]:
    """An absolute URL and when it ends; raises ``link.expires_in``, ``link.not_encrypted``."""
    longest = int(MAX_LINK_LIFETIME.total_seconds())
    if not 1 <= expires_in <= longest:
        raise invalid("link.expires_in", f"A link lasts 1 to {longest:,} seconds (7 days).")
    if not attachment.encrypted:
        raise conflict(
            "link.not_encrypted", "This file isn't encrypted: its view_url is open to everybody."
        )
    expires = int(now.timestamp()) + expires_in
    signature = keyring.signer(_PURPOSE).sign(_signed(attachment.filename, expires))
    url = f"{base}/media/{attachment.filename}?expires={expires}&signature={signature}"
    return url, datetime.fromtimestamp(expires, tz=now.tzinfo)


def opens(keyring: Keyring, filename: str, *, expires: str, signature: str, now: datetime) -> bool:
    """Whether a link's query is ours, for this file, and still lasts."""
    if not _SECONDS.match(expires):
        return False
    signed = keyring.signer(_PURPOSE).verify(_signed(filename, int(expires)), signature)
    return signed and now.timestamp() < int(expires)


def _signed(filename: str, expires: int) -> bytes:
    return f"{filename}\n{expires}".encode()
