"""Reads the client's IP address, referring page and browser from a request."""

from fastapi import Request

from core.settings import origins
from services.subscriptions.sign_up import Visitor

# Pairs of a text in the ``User-Agent`` header and the name of the browser. The order matters,
# because most browsers also name other browsers in the header. The first pair whose text occurs in
# the header determines the browser.
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
    # Behind a trusted proxy, Uvicorn has already replaced the proxy's IP address with the client's.
    return request.client.host if request.client else None


def referring_page(request: Request) -> str | None:
    """Return the ``Referer`` URL without its query, or ``None`` if the header is missing."""
    return origins.strip_query(request.headers.get("referer", ""))


def describe_visitor(request: Request, language: str | None) -> Visitor:
    return Visitor(
        client_address(request),
        browser_name(request.headers.get("user-agent")),
        request.headers.get("referer"),
        language,
    )


def browser_name(user_agent: str | None) -> str | None:
    """Return the browser and the operating system, such as "Firefox on Linux"."""
    text = (user_agent or "")[:1000]
    browser = next((name for part, name in _BROWSERS if part in text), None)
    system = next((name for part, name in _SYSTEMS if part in text), None)
    return " on ".join(filter(None, (browser, system))) or None
