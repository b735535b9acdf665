"""Reads the URL of the API and the API key from environment variables."""

import os
from typing import TypeVar
from urllib.parse import urlsplit

from pressroom_client.errors import PressroomError, SettingMissing

URL_VARIABLE = "PRESSROOM_URL"
KEY_VARIABLE = "PRESSROOM_KEY"
Given = TypeVar("Given")


def read_connection(base_url: str | None, credentials: Given) -> tuple[str, Given | str]:
    """Return the tidied URL of the API, and the credentials.

    Missing arguments are read from the environment variables. A client with a ``base_url`` ignores
    ``PRESSROOM_KEY``, because the key could belong to another server. Raises ``SettingMissing`` if
    an environment variable is missing too, and ``PressroomError`` for a malformed URL.
    """
    if base_url is not None:
        return tidy_url(base_url), credentials
    url = os.environ.get(URL_VARIABLE)
    key = credentials or os.environ.get(KEY_VARIABLE, "")
    missing_names = [
        name for name, value in ((URL_VARIABLE, url), (KEY_VARIABLE, key)) if not value
    ]
    if missing_names or not url:
        raise SettingMissing(
            f"Set {' and '.join(missing_names)}, or pass the URL and the API key to the client."
        )
    return tidy_url(url), key


def tidy_url(url: str) -> str:
    """Return the URL of the API without the blanks around it, and without a final slash.

    Raises ``PressroomError`` for a malformed URL. A URL with a password is refused too, because
    logs would contain the password. The message doesn't quote the URL, because it may be a
    misplaced key.
    """
    tidied = url.strip().rstrip("/")
    if not _is_valid_url(tidied):
        raise PressroomError(
            "The URL of the API must begin with https:// or http://, and must contain a valid host"
            " and port, but no user name, password or blank."
        )
    return tidied


def _is_valid_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False
    is_readable = url.isprintable() and " " not in url
    return (
        parts.scheme in {"http", "https"} and has_host and is_readable and "@" not in parts.netloc
    )
