"""URLs that are written into mails and rosters.

A holder of such a URL can act for the person to whom it was mailed, so it goes into that person's
mail alone.
"""

from urllib.parse import urlencode, urlsplit

from core.settings import Settings
from models import MailingList

UNSUBSCRIBE_PATH = "/unsubscribe"
CONFIRM_PATH = "/confirm"
REPORT_PATH = "/report"
SUBSCRIBED_PATH = "/subscribed"
SIGN_UP_PATH = "/s/{slug}"
PREFERENCES_PATH = "/preferences"
ASK_PREFERENCES_PATH = "/preferences/ask"
OPEN_PREFERENCES_PATH = "/preferences/open"
ANSWERS_PATH = "/preferences/answers"
OWN_DATA_PATH = "/preferences/data"
OWN_DATA_FILE_PATH = "/preferences/data.json"
ERASE_PATH = "/preferences/erase"
END_VISIT_PATH = "/preferences/end"
EMBED_PATH = "/s/{slug}/embed"


def unsubscribe_url(settings: Settings, trace_id: str) -> str:
    """The page on which a person leaves a list; by POST, RFC 8058's one click for mail clients."""
    return _url(settings, UNSUBSCRIBE_PATH, trace_id=trace_id)


def confirm_url(settings: Settings, secret: str) -> str:
    """The page that confirms a subscription; ``secret`` is a mailed token."""
    return _url(settings, CONFIRM_PATH, token=secret)


def preferences_url(settings: Settings, secret: str) -> str:
    """The page that opens a person's preferences; ``secret`` is a mailed token."""
    return _url(settings, OPEN_PREFERENCES_PATH, token=secret)


def report_url(settings: Settings, trace_id: str) -> str:
    """The page on which a person reports a list that they did not ask for."""
    return _url(settings, REPORT_PATH, trace_id=trace_id)


def subscribed_url(settings: Settings, list_id: int) -> str:
    """The page that thanks for a sign-up; it acts for no person and is in no mail."""
    return _url(settings, SUBSCRIBED_PATH, list=str(list_id))


def sign_up_url(settings: Settings, slug: str) -> str:
    """The page on which strangers subscribe; for everybody."""
    return settings.public_base + SIGN_UP_PATH.format(slug=slug)


def ask_preferences_url(settings: Settings, slug: str) -> str:
    """The page that has a link to a person's preferences mailed to their address."""
    return _url(settings, ASK_PREFERENCES_PATH, list=slug)


def submission_url(settings: Settings, list_id: int) -> str:
    """Where a form on any site sends what a stranger wrote."""
    return f"{settings.public_base}/subscriptions/{list_id}"


def embed_url(settings: Settings, slug: str) -> str:
    """The page that has the list's form as HTML for another site."""
    return settings.public_base + EMBED_PATH.format(slug=slug)


def one_click_url(settings: Settings, list_id: int, trace_id: str) -> str:
    """The API's one-click URL: POST only, so that a browser that opens it finds nothing."""
    return _url(settings, f"/subscriptions/{list_id}/delete", trace_id=trace_id)


def list_headers(settings: Settings, mailing_list: MailingList, trace_id: str) -> dict[str, str]:
    """The headers of a list's mail to one person: RFC 2919, RFC 2369 and RFC 8058."""
    host = urlsplit(settings.public_base).hostname
    return {
        "List-Id": f"<{mailing_list.slug}.{host}>",
        "List-Unsubscribe": f"<{unsubscribe_url(settings, trace_id)}>",
        "List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
    }


def _url(settings: Settings, path: str, **query: str) -> str:
    return f"{settings.public_base}{path}?{urlencode(query)}"
