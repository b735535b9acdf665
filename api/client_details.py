"""Reads the IP address, the referring page and the browser of a client from its request."""

from fastapi import Request

from core.settings import origins

# Pairs of a text that a ``User-Agent`` header may contain and the name of the browser. The first
# matching pair determines the browser, because most browsers also mention other browsers in
# ``User-Agent``.
_BROWSERS = (
    ("Edg", "Edge"),
    ("OPR/", "Opera"),
    ("Firefox/", "Firefox"),
    ("FxiOS/", "Firefox"),
    ("CriOS/", "Chrome"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
)
_SYSTEMS = (
    ("Android", "Android"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("CrOS", "ChromeOS"),
    ("Linux", "Linux"),
)


def client_address(request: Request) -> str | None:
    # ``request.client`` is never a trusted proxy, because Uvicorn has replaced the IP address of a
    # trusted proxy with the caller's.
    return request.client.host if request.client else None


def referring_page(request: Request) -> str | None:
    """Return the ``Referer`` URL without its query, or ``None`` if the header is missing."""
    return origins.strip_query(request.headers.get("referer", ""))


def browser_name(user_agent: str | None) -> str | None:
    """Return a name of the browser and system that people recognise, such as "Firefox on Linux"."""
    text = (user_agent or "")[:1000]
    browser = next((name for part, name in _BROWSERS if part in text), None)
    system = next((name for part, name in _SYSTEMS if part in text), None)
    return " on ".join(filter(None, (browser, system))) or None
