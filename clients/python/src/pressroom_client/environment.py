"""Reads the URL of the API and the API key from environment variables."""

import os
from typing import TypeVar

from pressroom_client.errors import SettingMissing

URL_VARIABLE = "PRESSROOM_URL"
KEY_VARIABLE = "PRESSROOM_KEY"
Given = TypeVar("Given")


def read_connection(base_url: str | None, credentials: Given) -> tuple[str, Given | str]:
    """Return the URL of the API without a final slash, and the credentials.

    The environment variables replace missing arguments. A client with a ``base_url`` ignores
    ``PRESSROOM_KEY``, because the key could belong to another server. Raises ``SettingMissing`` if
    an environment variable is missing too.
    """
    if base_url is not None:
        return base_url.rstrip("/"), credentials
    url = os.environ.get(URL_VARIABLE)
    key = credentials or os.environ.get(KEY_VARIABLE, "")
    missing_names = [
        name for name, value in ((URL_VARIABLE, url), (KEY_VARIABLE, key)) if not value
    ]
    if missing_names or not url:
        raise SettingMissing(
            f"Set {' and '.join(missing_names)}, or pass the URL and the API key to the client."
        )
    return url.rstrip("/"), key
