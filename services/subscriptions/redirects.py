"""Decides to which URLs the pages of a list may redirect readers."""

from core.settings import Settings, origins
from models import MailingList


def is_allowed(settings: Settings, mailing_list: MailingList, text: str) -> bool:
    url = origins.read_url(text)
    allowed_origins = {*settings.redirect_origins, *mailing_list.redirect_origins}
    return url is not None and url.is_allowed(allowed_origins)


def find_site(mailing_list: MailingList) -> str | None:
    """Return the first origin to which the list's forms may redirect."""
    return next(iter(mailing_list.redirect_origins), None)


def find_confirmed_redirect(settings: Settings, mailing_list: MailingList) -> str | None:
    """Return ``None`` if the URL's origin is no longer allowed."""
    url = mailing_list.confirmed_redirect
    return url if url is not None and is_allowed(settings, mailing_list, url) else None
