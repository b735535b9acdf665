"""Cleans the values that say where a sign-up came from, such as ``utm_source``.

An invalid value is dropped and never causes an error, because a typo in a campaign must not cost a
reader. Values that look like addresses or personal ids are dropped too.
"""

import re
import unicodedata
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

UTM_NAMES = ("utm_source", "utm_medium", "utm_campaign", "utm_term", "utm_content")
# All names of an origin, in the order of API responses and exports.
ORIGIN_NAMES = (*UTM_NAMES, "referrer", "landing")

MAX_UTM_CHARACTERS = 100
MAX_REFERRER_CHARACTERS = 253
MAX_LANDING_CHARACTERS = 300
# Longer values are dropped before they are cleaned, to limit the work.
_MAX_RAW_CHARACTERS = 2_048

# Maps the names of an origin to values. Names without a value are missing.
Origin = Mapping[str, str]

# Matches a control character, a surrogate, a line end, or a direction mark or control.
_REMOVED = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
# A personal id, such as a hash of an address or a UUID without hyphens.
_PERSONAL_ID = re.compile("[0-9a-f]{32}", re.IGNORECASE | re.ASCII)
_HOST = re.compile(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?", re.ASCII)


def clean_origin(values: Mapping[str, Any]) -> Origin:
    """Return the valid values of an origin. ``values`` may have other names, which are ignored."""
    cleaned = {name: clean_value(name, values.get(name)) for name in ORIGIN_NAMES}
    return {name: value for name, value in cleaned.items() if value is not None}


def clean_value(name: str, value: object) -> str | None:
    """Return a value of an origin in its stored form, or ``None`` if the value is invalid.

    ``name``: the name of the value, which is one of ``ORIGIN_NAMES``.
    """
    if not isinstance(value, str) or len(value) > _MAX_RAW_CHARACTERS:
        return None
    text = unicodedata.normalize("NFC", _REMOVED.sub("", value)).strip()
    if not text or _is_personal(text):
        return None
    match name:
        case "referrer":
            return _read_host(text)
        case "landing":
            return _read_path(text)
    text = unicodedata.normalize("NFC", text.lower())
    return text if len(text) <= MAX_UTM_CHARACTERS else None


def read_referring_page(url: str | None) -> Origin:
    """Return the host and the path of a ``Referer`` URL as the origin of a sign-up.

    Most browsers send other sites only the host of a page. A path of ``/`` is therefore left out,
    because it rarely is the path of the page.
    """
    origin = clean_origin({"referrer": url, "landing": url})
    return {name: value for name, value in origin.items() if value != "/"}


def fill_origin(origin: Origin | None) -> dict[str, str | None] | None:
    """Return the origin with all names, or ``None`` if nothing is known."""
    return {name: origin.get(name) for name in ORIGIN_NAMES} if origin else None


def _is_personal(text: str) -> bool:
    """Return whether a text or its decoded form contains an ``@`` or a personal id."""
    decoded = unicodedata.normalize("NFKC", unquote(text))
    return any("@" in each or _PERSONAL_ID.search(each) for each in (text, decoded))


def _read_host(text: str) -> str | None:
    """Return the host of a host name or URL, without a port."""
    try:
        host = urlsplit(text if "//" in text else f"//{text}").hostname or ""
        host = host.rstrip(".").encode("idna").decode()
    except ValueError:
        return None
    return host if len(host) <= MAX_REFERRER_CHARACTERS and _HOST.fullmatch(host) else None


def _read_path(text: str) -> str | None:
    """Return the path of a path or URL, without the query and the fragment."""
    try:
        path = urlsplit(text).path if "//" in text else re.split("[?#]", text, maxsplit=1)[0]
    except ValueError:
        return None
    return path if path.startswith("/") and len(path) <= MAX_LANDING_CHARACTERS else None
