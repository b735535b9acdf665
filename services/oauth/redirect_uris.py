"""Redirect URIs: a browser is sent back only to a URI that the client was registered with."""

import re
from urllib.parse import SplitResult, urlsplit, urlunsplit

from core.refusals.oauth import OAUTH_CLIENT_REDIRECT_URI

MAX_REDIRECT_URI_CHARACTERS = 2000
# A program on a person's own device listens at one of these addresses, on any free port (RFC 8252,
# 7.3). "localhost" may be another machine, so its port must match like any other host's.
_LOOPBACK = {"127.0.0.1", "::1"}
# Printable ASCII of RFC 3986. Browsers read a backslash as a slash, and no URI has one.
_CHARACTERS = re.compile(r"[A-Za-z0-9._~:/?\[\]@!$&'()*+,;=%-]+\Z")
# A private scheme is a reversed domain name (RFC 8252, 7.1), so that no other program has it.
_OWN_SCHEME = re.compile(r"[a-z][a-z0-9-]*(\.[a-z0-9-]+)+\Z")


def require_registrable(uri: str) -> None:
    """Raises ``oauth_client.redirect_uri`` for a URI that no client may register."""
    parts = _split(uri)
    if parts is None or not _CHARACTERS.match(uri) or len(uri) > MAX_REDIRECT_URI_CHARACTERS:
        raise OAUTH_CLIENT_REDIRECT_URI(uri=uri, reason="is no plain URI")
    if parts.fragment or "#" in uri:
        raise OAUTH_CLIENT_REDIRECT_URI(uri=uri, reason="has a fragment")
    if urlunsplit(parts) != uri:
        raise OAUTH_CLIENT_REDIRECT_URI(uri=uri, reason="is not in its usual spelling")
    if parts.scheme in {"http", "https"}:
        if "@" in parts.netloc or not parts.hostname:
            raise OAUTH_CLIENT_REDIRECT_URI(uri=uri, reason="has no plain host")
        if parts.scheme == "http" and parts.hostname not in {*_LOOPBACK, "localhost"}:
            reason = "must be https, unless it is on loopback"
            raise OAUTH_CLIENT_REDIRECT_URI(uri=uri, reason=reason)
    elif not _OWN_SCHEME.match(parts.scheme) or parts.netloc or not parts.path.startswith("/"):
        raise OAUTH_CLIENT_REDIRECT_URI(
            uri=uri, reason="must be https, http on loopback, or com.example.app:/path"
        )


def is_registered(uri: str, registered: list[str]) -> bool:
    """Whether the client registered the URI: compared by characters, but for loopback ports."""
    return uri in registered or any(_differs_by_port(uri, each) for each in registered)


def _differs_by_port(uri: str, registered: str) -> bool:
    sent, known = _split(uri), _split(registered)
    if sent is None or known is None or known.scheme != "http" or known.hostname not in _LOOPBACK:
        return False
    host = f"[{known.hostname}]" if known.hostname == "::1" else known.hostname
    # Built anew from the registered URI, so that only the port can differ.
    return sent.port is not None and uri == urlunsplit(known._replace(netloc=f"{host}:{sent.port}"))


def _split(uri: str) -> SplitResult | None:
    try:
        parts = urlsplit(uri)
        _ = parts.port
    except ValueError:
        return None
    return parts
