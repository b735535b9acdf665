"""Decides to which URLs the pages of a list may redirect readers."""

from core.settings import Settings, origins
from models import MailingList


def is_allowed(settings: Settings, mailing_list: MailingList, text: str) -> bool:
    """Return whether a text is a URL whose origin the list or the operator allows."""
    url = origins.read_url(text)
    allowed_origins = {*settings.redirect_origins, *mailing_list.redirect_origins}
    return url is not None and url.is_allowed(allowed_origins)


def find_site(mailing_list: MailingList) -> str | None:
    """Return the address of the owner's website, or ``None`` if it is unknown.

    An owner can allow the list's forms to redirect to several origins, such as
    ``https://example.com``. The first allowed origin counts as the owner's website.
    """
    return next(iter(mailing_list.redirect_origins), None)


def find_confirmed_redirect(settings: Settings, mailing_list: MailingList) -> str | None:
    """Return the URL to which the list redirects readers after a confirmation.

    Return ``None`` if the list has no such URL, or if the URL's origin is no longer allowed.
    """
    url = mailing_list.confirmed_redirect
    return url if url is not None and is_allowed(settings, mailing_list, url) else None
