"""Where mail leads to: the URLs that are written into mails and rosters.

Whoever holds one speaks for the person it was mailed to, so they go into that person's mail alone.
"""

from urllib.parse import urlencode

from core.settings import Settings

UNSUBSCRIBE_PATH = "/unsubscribe"
CONFIRM_PATH = "/confirm"


def unsubscribe_url(settings: Settings, trace_id: str) -> str:
    """A page to leave a list, for people; by POST also RFC 8058's one click, for mail clients."""
    return _address(settings, UNSUBSCRIBE_PATH, trace_id=trace_id)


def confirm_url(settings: Settings, secret: str) -> str:
    """The page that confirms a subscription; ``secret`` is that of a mailed link."""
    return _address(settings, CONFIRM_PATH, token=secret)


def one_click_url(settings: Settings, list_id: int, trace_id: str) -> str:
    """The one-click address of the API: POST only, so that a browser finds nothing there."""
    return _address(settings, f"/subscriptions/{list_id}/delete", trace_id=trace_id)


def _address(settings: Settings, path: str, **query: str) -> str:
    return f"{settings.public_base}{path}?{urlencode(query)}"
