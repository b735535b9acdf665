"""Signed URLs: each opens one file to every caller who has it, until it expires."""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlencode

from core.keyring import Keyring

_SECONDS = re.compile(r"[0-9]{1,12}\Z")


@dataclass(frozen=True)
class SignedUrls:
    """A kind of signed URLs, whose signatures open nothing of another kind.

    Attributes:
        purpose: that of the key that signs them.
        prefix: what comes in a URL's path before the name that is signed.
    """

    purpose: str
    prefix: str = ""

    def create(
        self, keyring: Keyring, name: str, *, base: str, lifetime: timedelta, now: datetime
    ) -> tuple[str, datetime]:
        """An absolute URL for what has this name, and when it expires."""
        expires = int((now + lifetime).timestamp())
        signature = keyring.signer(self.purpose).sign(_message(name, expires))
        query = urlencode({"expires": expires, "signature": signature})
        url = f"{base}{self.prefix}{name}?{query}"
        return url, datetime.fromtimestamp(expires, tz=now.tzinfo)

    def opens(
        self, keyring: Keyring, name: str, *, expires: str, signature: str, now: datetime
    ) -> bool:
        """Return whether a URL's query was made by ``create``, for this name, and has not
        expired.
        """
        if not _SECONDS.match(expires):
            return False
        signed = keyring.signer(self.purpose).verify(_message(name, int(expires)), signature)
        return signed and now.timestamp() < int(expires)


def _message(name: str, expires: int) -> bytes:
    return f"{name}\n{expires}".encode()


# Files that jobs make, named by the path of the route that serves them.
FILE_URLS = SignedUrls("file-link")
FILE_URL_LIFETIME = timedelta(minutes=15)

# The API's answer says how it sees the caller: for `pressroom doctor`.
SEEN_CALLERS = SignedUrls("seen-caller")
SEEN_HEADER = "Pressroom-Seen"
