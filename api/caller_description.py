"""Tells `pressroom doctor` which IP address and URL scheme the API sees for a request.

`pressroom doctor` uses the response of this route to check the configuration of a proxy in front of
the API.
"""

import json
from ipaddress import ip_address

from fastapi import Request

from core import clock
from core.settings import Settings
from core.signed_urls import SEEN_CALLERS

# The key of the TCP peer's address in the ASGI scope.
PEER = "pressroom.peer"


def describe_caller(request: Request, settings: Settings) -> str | None:
    """Return a JSON description of the caller, or ``None`` if the URL's signature is invalid."""
    query = request.query_params
    signature = {name: query.get(name, "") for name in ("expires", "signature")}
    path = request.url.path
    if not SEEN_CALLERS.opens(settings.keyring, path, **signature, now=clock.now()):
        return None
    peer: tuple[str, int] | None = request.scope.get(PEER)
    address = peer[0] if peer else None
    try:
        peer_address = ip_address(address or "")
    except ValueError:  # The peer's address may be the path of a Unix socket.
        is_trusted = False
    else:
        is_trusted = any(peer_address in network for network in settings.trusted_proxies or ())
    return json.dumps(
        {
            "address": request.client.host if request.client else None,
            "scheme": request.url.scheme,
            "peer": address,
            "is_forwarded": "x-forwarded-for" in request.headers,
            "is_trusted": is_trusted,
        }
    )
