"""Links to files that the API serves: whoever has one can fetch that file, for 15 minutes."""

import re
from datetime import datetime, timedelta
from urllib.parse import urlencode

from core.keyring import Keyring

FILE_LINK_LIFETIME = timedelta(minutes=15)
_PURPOSE = "file-link"
_SECONDS = re.compile(r"[0-9]{1,12}\Z")


def create(keyring: Keyring, path: str, *, base: str, now: datetime) -> str:
    """An absolute URL for the path of a route that serves a file."""
    expires = int((now + FILE_LINK_LIFETIME).timestamp())
    query = urlencode(
        {"expires": expires, "signature": keyring.signer(_PURPOSE).sign(_signed(path, expires))}
    )
    return f"{base}{path}?{query}"


def opens(keyring: Keyring, path: str, *, expires: str, signature: str, now: datetime) -> bool:
    """Whether a link's query is ours, for this path, and still lasts."""
    if not _SECONDS.match(expires):
        return False
    signed = keyring.signer(_PURPOSE).verify(_signed(path, int(expires)), signature)
    return signed and now.timestamp() < int(expires)


def _signed(path: str, expires: int) -> bytes:
    return f"{path}\n{expires}".encode()
