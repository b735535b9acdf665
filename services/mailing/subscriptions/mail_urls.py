"""Where mail leads to: the URLs that are written into mails and rosters.

Whoever holds one speaks for the person it was mailed to, so they go into that person's mail alone.
"""

from urllib.parse import urlencode, urlsplit

from core.settings import Settings
from models import MailingList

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


def list_headers(settings: Settings, mailing_list: MailingList, trace_id: str) -> dict[str, str]:
    """The headers of a list's mail to one person: RFC 2919, RFC 2369 and RFC 8058."""
    host = urlsplit(settings.public_base).hostname
    return {
        "List-Id": f"<{mailing_list.slug}.{host}>",
        "List-Unsubscribe": f"<{unsubscribe_url(settings, trace_id)}>",
        "List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
    }


def _address(settings: Settings, path: str, **query: str) -> str:
    return f"{settings.public_base}{path}?{urlencode(query)}"
