"""Signed URLs. Anyone who has a signed URL can fetch one file until the URL expires."""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlencode

from core.keyring import Keyring

FILE_URL_LIFETIME = timedelta(minutes=15)
SEEN_HEADER = "Pressroom-Seen"
_SECONDS = re.compile(r"[0-9]{1,12}\Z")


@dataclass(frozen=True)
class SignedUrls:
    """A signer whose signatures are valid for only one kind of URL."""

    purpose: str
    prefix: str = ""

    def create(
        self, keyring: Keyring, name: str, *, base: str, lifetime: timedelta, now: datetime
    ) -> tuple[str, datetime]:
        """Return a signed absolute URL for ``name``, and the time at which the URL expires."""
        expires = int((now + lifetime).timestamp())
        signature = keyring.signer(self.purpose).sign(_message(name, expires))
        query = urlencode({"expires": expires, "signature": signature})
        url = f"{base}{self.prefix}{name}?{query}"
        return url, datetime.fromtimestamp(expires, tz=now.tzinfo)

    def opens(
        self, keyring: Keyring, name: str, *, expires: str, signature: str, now: datetime
    ) -> bool:
        if not _SECONDS.match(expires):
            return False
        is_signed = keyring.signer(self.purpose).verify(_message(name, int(expires)), signature)
        return is_signed and now.timestamp() < int(expires)


# Signed URLs of files that jobs create. The signature covers the path of the route that serves the
# file.
FILE_URLS = SignedUrls("file-link")

# `pressroom doctor` calls a signed URL to find out which client address the API sees.
SEEN_CALLERS = SignedUrls("seen-caller")


def _message(name: str, expires: int) -> bytes:
    return f"{name}\n{expires}".encode()
