"""Origins of web pages: a scheme, a host and a port, in one spelling."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator
from pydantic_settings import NoDecode

from core.settings.notations import COMMA_SEPARATED

# This word stands for every port of this machine's loopback addresses, with either scheme.
LOOPBACK_WORD = "loopback"
_LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})
_DEFAULT_PORTS = {"http": "80", "https": "443"}
_MAX_PORT = 65_535
# Only a host's plain spelling: no user, no escapes, no octal or hexadecimal numbers.
ORIGIN = re.compile(
    r"(?P<scheme>https?)://(?P<host>[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])"
    r"(?::(?P<port>[0-9]{1,5}))?",
    re.IGNORECASE | re.ASCII,
)

MAX_URL_CHARACTERS = 2_048
# Only characters and escapes of RFC 3986, read strictly: an origin, then nothing or a path.
_REST = r"(?P<path>(?:/(?!/)(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})*)*)"
_TAIL = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*"
_URL = re.compile(
    rf"(?P<origin>{ORIGIN.pattern}){_REST}(?P<query>\?{_TAIL})?(?P<fragment>#{_TAIL})?",
    re.IGNORECASE | re.ASCII,
)
# An escaped control character or backslash: a program that decodes it may read another URL.
_ESCAPED_TRICK = re.compile(r"%(?:[01][0-9a-f]|7f|5c)", re.IGNORECASE)


@dataclass(frozen=True)
class PlainUrl:
    """A URL in which no browser, proxy or library could read another origin."""

    origin: str
    query: str

    def is_of(self, allowed: Collection[str]) -> bool:
        """Return whether the URL's origin is allowed; the word `loopback` allows every port of this
        machine.
        """
        is_own_machine = LOOPBACK_WORD in allowed and is_loopback(self.origin)
        return self.origin in allowed or is_own_machine


def read_url(text: str) -> PlainUrl | None:
    """Return the absolute URL, or ``None`` for a text that some program could read in two ways."""
    match = _URL.fullmatch(text) if len(text) <= MAX_URL_CHARACTERS else None
    if match is None or _ESCAPED_TRICK.search(text):
        return None
    if not match["path"] and (match["query"] or match["fragment"]):
        # Unless a path begins first, some programs read the text before a later @ as a user name.
        return None
    origin = origin_of(match)
    return None if origin is None else PlainUrl(origin, (match["query"] or "")[1:])


def page_of(text: str) -> str | None:
    """Return the URL's origin and path as they are written; ``None`` as ``read_url``.

    A query and a fragment may hold anything, of any length.
    """
    page = text.partition("#")[0].partition("?")[0]
    return None if read_url(page) is None else page


def read(text: str) -> str | None:
    """Return the origin in lower case, without its scheme's default port, or ``None``."""
    match = ORIGIN.fullmatch(text)
    return None if match is None else origin_of(match)


def origin_of(match: re.Match[str]) -> str | None:
    """Return the origin that ``ORIGIN`` matched; ``None`` if there is no such port."""
    scheme, host, port = match["scheme"].lower(), match["host"].lower(), match["port"]
    if port is None or port == _DEFAULT_PORTS[scheme]:
        return f"{scheme}://{host}"
    if port != str(int(port)) or not 0 < int(port) <= _MAX_PORT:
        return None
    return f"{scheme}://{host}:{port}"


def is_loopback(origin: str) -> bool:
    match = ORIGIN.fullmatch(origin)
    return match is not None and match["host"] in _LOOPBACK_HOSTS


def _spelled(texts: tuple[str, ...]) -> tuple[str, ...]:
    known = tuple(text if text == LOOPBACK_WORD else read(text) or "" for text in texts)
    if "" in known:
        raise ValueError("must be origins (http or https, a host, a port) without a path")
    return known


# Type of a setting.
Origins = Annotated[tuple[str, ...], NoDecode, COMMA_SEPARATED, AfterValidator(_spelled)]
