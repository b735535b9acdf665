"""Normalizes the origins of web pages. An origin consists of a scheme, a host and a port."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator
from pydantic_settings import NoDecode

from core.settings.notations import COMMA_SEPARATED

# The word that allows every port of the local machine, with http and https.
LOOPBACK_WORD = "loopback"
_LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})
_DEFAULT_PORTS = {"http": "80", "https": "443"}
_MAX_PORT = 65_535
# The pattern for origins accepts only host names and IP addresses, without user names, escapes,
# octal numbers or hexadecimal numbers.
ORIGIN = re.compile(
    r"(?P<scheme>https?)://(?P<host>[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])"
    r"(?::(?P<port>[0-9]{1,5}))?",
    re.IGNORECASE | re.ASCII,
)

MAX_URL_CHARACTERS = 2_048
# The pattern for URLs accepts only the characters and escapes that RFC 3986 allows.
_PATH = r"(?P<path>(?:/(?!/)(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})*)*)"
_TAIL = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*"
_URL = re.compile(
    rf"(?P<origin>{ORIGIN.pattern}){_PATH}(?P<query>\?{_TAIL})?(?P<fragment>#{_TAIL})?",
    re.IGNORECASE | re.ASCII,
)
# Matches a percent-encoded control character or backslash. Programs could read a URL with an
# escaped character differently, because only some programs decode it.
_ESCAPED_TRICK = re.compile(r"%(?:[01][0-9a-f]|7f|5c)", re.IGNORECASE)


@dataclass(frozen=True)
class PlainUrl:
    """A URL whose origin is the same for every browser, proxy and library."""

    origin: str
    query: str

    def is_allowed(self, allowed: Collection[str]) -> bool:
        """Treat ``loopback`` in ``allowed`` as every port of the local machine."""
        is_local = LOOPBACK_WORD in allowed and is_loopback(self.origin)
        return self.origin in allowed or is_local


def read_url(text: str) -> PlainUrl | None:
    """Parse an absolute URL, or return ``None`` if programs could disagree about its meaning."""
    match = _URL.fullmatch(text) if len(text) <= MAX_URL_CHARACTERS else None
    if match is None or _ESCAPED_TRICK.search(text):
        return None
    if not match["path"] and (match["query"] or match["fragment"]):
        # If a query directly follows the host, some programs take the text before an ``@`` for a
        # user name.
        return None
    origin = _normalize_match(match)
    return None if origin is None else PlainUrl(origin, (match["query"] or "")[1:])


def strip_query(text: str) -> str | None:
    """Return ``None`` if the URL is ambiguous. The query and the fragment aren't checked."""
    page = text.partition("#")[0].partition("?")[0]
    return None if read_url(page) is None else page


def normalize_origin(text: str) -> str | None:
    match = ORIGIN.fullmatch(text)
    return None if match is None else _normalize_match(match)


def is_loopback(origin: str) -> bool:
    match = ORIGIN.fullmatch(origin)
    return match is not None and match["host"] in _LOOPBACK_HOSTS


def _normalize_match(match: re.Match[str]) -> str | None:
    scheme = match["scheme"].lower()
    host = match["host"].lower()
    port = match["port"]
    if port is None or port == _DEFAULT_PORTS[scheme]:
        return f"{scheme}://{host}"
    if port != str(int(port)) or not 0 < int(port) <= _MAX_PORT:
        return None
    return f"{scheme}://{host}:{port}"


def _require_origins(texts: tuple[str, ...]) -> tuple[str, ...]:
    origins = tuple(
        text if text == LOOPBACK_WORD else normalize_origin(text) or "" for text in texts
    )
    if "" in origins:
        raise ValueError(
            "must be origins such as https://example.com or http://example.com:8080, without a path"
        )
    return origins


# The type of settings that contain a list of origins.
Origins = Annotated[tuple[str, ...], NoDecode, COMMA_SEPARATED, AfterValidator(_require_origins)]
