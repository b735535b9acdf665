"""Reads the IP address, the referring page and the browser of a client from its request."""

from fastapi import Request

from core.settings import origins

# Maps a part of the ``User-Agent`` header to a browser name. The first match counts, because most
# browsers also name other browsers in this header.
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
    # Behind a trusted proxy, Uvicorn has already replaced the proxy's address by the caller's.
    return request.client.host if request.client else None


def referring_page(request: Request) -> str | None:
    """Return the URL of the referring page without its query, or ``None`` if none was sent."""
    return origins.strip_query(request.headers.get("referer", ""))


def browser_name(user_agent: str | None) -> str | None:
    """Return a browser name that the user recognises, such as "Firefox on Linux"."""
    text = (user_agent or "")[:1000]
    browser = next((name for part, name in _BROWSERS if part in text), None)
    system = next((name for part, name in _SYSTEMS if part in text), None)
    return " on ".join(filter(None, (browser, system))) or None
