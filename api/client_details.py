"""Details of a request that describe its client: IP address, referring page, browser."""

from fastapi import Request

from core.settings import origins

# The first match counts, because most browsers also name others in their ``User-Agent``.
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
    # Behind a trusted proxy, the server has already replaced the proxy by its client.
    return request.client.host if request.client else None


def referring_page(request: Request) -> str | None:
    """Return the page that led to the request, without its query, if the browser sends it."""
    return origins.page_of(request.headers.get("referer", ""))


def browser_name(user_agent: str | None) -> str | None:
    """Return a name for the browser that its user recognises, such as "Firefox on Linux"."""
    text = (user_agent or "")[:1000]
    browser = next((name for mark, name in _BROWSERS if mark in text), None)
    system = next((name for mark, name in _SYSTEMS if mark in text), None)
    return " on ".join(filter(None, (browser, system))) or None
