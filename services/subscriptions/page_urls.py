"""The addresses of the pages for readers, and of the calls that their mails lead to."""

from urllib.parse import urlencode

from core.settings import Settings

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
REPORT_PAGE_PATH = "/s/{slug}/report"


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
    return settings.pages_base + SIGN_UP_PATH.format(slug=slug)


def ask_preferences_url(settings: Settings, slug: str) -> str:
    """The page that has a link to a person's preferences mailed to their address."""
    return _url(settings, ASK_PREFERENCES_PATH, list=slug)


def submission_url(settings: Settings, list_id: int) -> str:
    """Where a form on any site sends what a stranger wrote."""
    return f"{settings.pages_base}/subscriptions/{list_id}"


def report_page_url(settings: Settings, slug: str) -> str:
    """The page on which anybody reports the list's page."""
    return settings.pages_base + REPORT_PAGE_PATH.format(slug=slug)


def one_click_url(settings: Settings, list_id: int, trace_id: str) -> str:
    """The API's one-click URL: POST only, so that a browser that opens it finds nothing."""
    return _url(settings, f"/subscriptions/{list_id}/delete", trace_id=trace_id)


def _url(settings: Settings, path: str, **query: str) -> str:
    return f"{settings.pages_base}{path}?{urlencode(query)}"
