"""Builds the URLs of public pages, and the API's URLs in mails."""

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
ENGAGEMENT_PATH = "/engagement"
VISIT_ENGAGEMENT_PATH = "/preferences/engagement"
REPORT_PAGE_PATH = "/s/{slug}/report"


def unsubscribe_url(settings: Settings, trace_id: str) -> str:
    """Return a page that also accepts one-click requests (RFC 8058)."""
    return _url(settings, UNSUBSCRIBE_PATH, trace_id=trace_id)


def confirm_url(settings: Settings, secret: str) -> str:
    return _url(settings, CONFIRM_PATH, token=secret)


def preferences_url(settings: Settings, secret: str) -> str:
    return _url(settings, OPEN_PREFERENCES_PATH, token=secret)


def report_url(settings: Settings, trace_id: str) -> str:
    return _url(settings, REPORT_PATH, trace_id=trace_id)


def subscribed_url(settings: Settings, list_id: int) -> str:
    return _url(settings, SUBSCRIBED_PATH, list=str(list_id))


def sign_up_url(settings: Settings, slug: str) -> str:
    return settings.pages_base + SIGN_UP_PATH.format(slug=slug)


def ask_preferences_url(settings: Settings, slug: str) -> str:
    return _url(settings, ASK_PREFERENCES_PATH, list=slug)


def submission_url(settings: Settings, list_id: int) -> str:
    return f"{settings.pages_base}/subscriptions/{list_id}"


def report_page_url(settings: Settings, slug: str) -> str:
    return settings.pages_base + REPORT_PAGE_PATH.format(slug=slug)


def one_click_url(settings: Settings, list_id: int, trace_id: str) -> str:
    """Return the API's URL, which accepts only POST requests."""
    return _url(settings, f"/subscriptions/{list_id}/delete", trace_id=trace_id)


def _url(settings: Settings, path: str, **query: str) -> str:
    return f"{settings.pages_base}{path}?{urlencode(query)}"
