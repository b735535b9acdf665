"""Origins of web pages: a scheme, a host and a port, in one spelling."""

import re
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
