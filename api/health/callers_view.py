"""How the API sees a caller, for the operator who wonders about the proxy in front of it."""

import json
from ipaddress import ip_address

from fastapi import Request

from core import clock
from core.settings import Settings
from core.signed_urls import SEEN_CALLERS

# Where the scope of a request keeps who has the other end of its connection.
PEER = "pressroom.peer"


def seen(request: Request, settings: Settings) -> str | None:
    """What is seen, as JSON for a header; ``None`` unless a holder of the secret keys asks."""
    query = request.query_params
    asked = {name: query.get(name, "") for name in ("expires", "signature")}
    path = request.url.path
    if not SEEN_CALLERS.opens(settings.keyring, path, **asked, now=clock.now()):
        return None
    peer: tuple[str, int] | None = request.scope.get(PEER)
    address = peer[0] if peer else None
    return json.dumps(
        {
            "address": request.client.host if request.client else None,
            "scheme": request.url.scheme,
            "peer": address,
            "is_forwarded": "x-forwarded-for" in request.headers,
            "is_trusted": address is not None and _is_trusted(address, settings),
        }
    )


def _is_trusted(address: str, settings: Settings) -> bool:
    try:
        found = ip_address(address)
    except ValueError:  # such as the path of a socket
        return False
    return any(found in network for network in settings.trusted_proxies or ())
