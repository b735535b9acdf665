"""Reads the IP address, the referring page and the browser of a client from its request."""

from fastapi import Request

from core.settings import origins

# The first match counts, because most browsers also name other browsers in their ``User-Agent``.
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
    """Return the IP address of the caller."""
    # Behind a trusted proxy, Uvicorn has already replaced the proxy's address by the caller's.
    return request.client.host if request.client else None


def referring_page(request: Request) -> str | None:
    """Return the URL of the referring page without its query, if the browser sent this URL."""
    return origins.strip_query(request.headers.get("referer", ""))


def browser_name(user_agent: str | None) -> str | None:
    """Return a browser name that the user recognises, such as "Firefox on Linux"."""
    text = (user_agent or "")[:1000]
    browser = next((name for mark, name in _BROWSERS if mark in text), None)
    system = next((name for mark, name in _SYSTEMS if mark in text), None)
    return " on ".join(filter(None, (browser, system))) or None
