"""Origins of web pages: a scheme, a host and a port, in one spelling."""

import re
from typing import Annotated

from pydantic import BeforeValidator
from pydantic_settings import NoDecode

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


def _read_all(value: object) -> object:
    if not isinstance(value, str):
        return value
    texts = [part.strip() for part in value.split(",") if part.strip()]
    known = [text if text == LOOPBACK_WORD else read(text) for text in texts]
    if None in known:
        raise ValueError("must be origins (http or https, a host, a port) without a path")
    return tuple(known)


# Type of a setting.
Origins = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_read_all)]
