"""Cleans the origin of a sign-up, which says where the sign-up came from.

An origin maps names, such as ``utm_source`` and ``referrer``, to values. Invalid values are dropped
without an error, because a typo in a link must not prevent a sign-up. A value that looks like an
e-mail address or the id of a person is dropped too.
"""

import re
import unicodedata
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from core.languages.shown_lines import is_shown, strip_invisible

UTM_NAMES = ("utm_source", "utm_medium", "utm_campaign", "utm_term", "utm_content")
# All names that the origin of a sign-up can contain, in the order of API responses and exports.
ORIGIN_NAMES = (*UTM_NAMES, "referrer", "landing")

MAX_UTM_CHARACTERS = 100
MAX_REFERRER_CHARACTERS = 253
MAX_LANDING_CHARACTERS = 300
_MAX_CHARACTERS = {
    **dict.fromkeys(UTM_NAMES, MAX_UTM_CHARACTERS),
    "referrer": MAX_REFERRER_CHARACTERS,
    "landing": MAX_LANDING_CHARACTERS,
}
# To limit the work, Pressroom reads only the first ``_MAX_RAW_CHARACTERS`` characters of a
# submitted value.
_MAX_RAW_CHARACTERS = 2_048
# How many times a submitted value is percent-decoded, to find an e-mail address or the id of a
# person in the value. A value that changes in each of these decodings is dropped, because no
# ordinary link is percent-encoded so often.
_MAX_DECODINGS = 5

# The origin of a sign-up, which maps names such as ``utm_source`` to values. Names that have no
# value are missing.
Origin = Mapping[str, str]

# Matches a control character, a surrogate, a line separator, or a character that controls the
# direction of the text.
_REMOVED = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ud800-\udfff]"
)
# Matches a possible id of a person, such as a hash of an e-mail address or a UUID without hyphens.
_PERSONAL_ID = re.compile("[0-9a-f]{32}", re.IGNORECASE | re.ASCII)
# Some host names contain an underscore, although the standard forbids underscores.
_HOST = re.compile(r"[a-z0-9_](?:[a-z0-9._-]*[a-z0-9])?", re.ASCII)


def clean_origin(values: Mapping[str, Any]) -> Origin:
    cleaned = {name: clean_value(name, values.get(name)) for name in ORIGIN_NAMES}
    return {name: value for name, value in cleaned.items() if value is not None}


def clean_value(name: str, value: object) -> str | None:
    if not isinstance(value, str):
        return None
    if name not in UTM_NAMES:
        # Remove the query and the fragment of the URL, because both may be long or contain personal
        # data.
        value = re.split("[?#]", value, maxsplit=1)[0]
    text = _REMOVED.sub("", value[:_MAX_RAW_CHARACTERS])
    text = strip_invisible(unicodedata.normalize("NFC", text))
    match name:
        case "referrer":
            text = _read_host(text)
        case "landing":
            text = _read_path(text)
        case _:
            text = unicodedata.normalize("NFC", text.lower())
    is_valid = is_shown(text) and len(text) <= _MAX_CHARACTERS[name] and not _is_personal(text)
    return text if is_valid else None


def read_referring_page(url: str | None) -> Origin:
    """Omit the path ``/``, because most browsers replace the real path with ``/``."""
    origin = clean_origin({"referrer": url, "landing": url})
    return {name: value for name, value in origin.items() if value != "/"}


def fill_origin(origin: Origin | None) -> dict[str, str | None] | None:
    """Add ``None`` for each name without a value. Return ``None`` if no name has a value."""
    return {name: origin.get(name) for name in ORIGIN_NAMES} if origin else None


def _is_personal(text: str) -> bool:
    """Return whether a text or a decoded form of it contains an ``@`` or the id of a person."""
    for _ in range(_MAX_DECODINGS):
        if "@" in text or _PERSONAL_ID.search(text):
            return True
        characters = unicodedata.normalize("NFKC", unquote(text))
        decoded = "".join(each for each in characters if unicodedata.category(each) != "Cf")
        if decoded == text:
            return False
        text = decoded
    return True


def _read_host(text: str) -> str:
    try:
        url = urlsplit(text if "//" in text else f"//{text}")
        # ``url.port`` raises ``ValueError`` for a text such as ``about:blank``. A text with an
        # ``@`` is rejected, because the part before the ``@`` may be the name of a person.
        has_host = url.port != 0 and "@" not in url.netloc
        host = (url.hostname or "").rstrip(".").encode("idna").decode()
    except ValueError:
        return ""
    return host if has_host and _HOST.fullmatch(host) else ""


def _read_path(text: str) -> str:
    """Return the path of a URL, the text if it is a path, or an empty string."""
    try:
        path = urlsplit(text).path if "//" in text else text
    except ValueError:
        return ""
    return path if path.startswith("/") else ""
