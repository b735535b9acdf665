"""Where a payer may be sent back to: an address of an allowed origin, and nothing that a browser,
a proxy or a library could read as another."""

import re
from collections.abc import Collection
from urllib.parse import parse_qsl, urlencode

from core.refusals.money import TOPUP_REDIRECT_NOT_ALLOWED
from core.settings import origins
from core.settings.origins import LOOPBACK_WORD

MAX_REDIRECT_URL_CHARACTERS = 2_048
# What we add; an address that brings its own could tell its page that it was paid.
ORDER, STATUS = "order_id", "status"
# RFC 3986's own characters and escapes, in one strict reading: an origin, then nothing or a path.
_REST = r"(?P<path>(?:/(?!/)(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})*)*)"
_TAIL = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*"
_ADDRESS = re.compile(
    rf"(?P<origin>{origins.ORIGIN.pattern}){_REST}"
    rf"(?P<query>\?{_TAIL})?(?P<fragment>#{_TAIL})?",
    re.IGNORECASE | re.ASCII,
)
# An escaped control character or backslash: what decodes it may read another address.
_ESCAPED_TRICK = re.compile(r"%(?:[01][0-9a-f]|7f|5c)", re.IGNORECASE)


def check(url: str, allowed: Collection[str]) -> None:
    """Raises ``topup.redirect_not_allowed``."""
    if not _is_allowed(url, allowed):
        raise TOPUP_REDIRECT_NOT_ALLOWED(
            most=MAX_REDIRECT_URL_CHARACTERS, order=ORDER, status=STATUS
        )


def add_result(url: str, order_id: int, status: str) -> str:
    """The address with what became of the order in its query."""
    address, hash_mark, fragment = url.partition("#")
    separator = "&" if "?" in address else "?"
    result = urlencode({ORDER: order_id, STATUS: status})
    return f"{address}{separator}{result}{hash_mark}{fragment}"


def _is_allowed(url: str, allowed: Collection[str]) -> bool:
    match = _ADDRESS.fullmatch(url) if len(url) <= MAX_REDIRECT_URL_CHARACTERS else None
    if match is None or _ESCAPED_TRICK.search(url):
        return False
    if not match["path"] and (match["query"] or match["fragment"]):
        # Some read what stands before an @ further on as a user, unless a path begins first.
        return False
    origin = origins.origin_of(match)
    if origin is None or _names_a_result(match["query"] or ""):
        return False
    return origin in allowed or (LOOPBACK_WORD in allowed and origins.is_loopback(origin))


def _names_a_result(query: str) -> bool:
    # Some servers take a semicolon for a separator too.
    names = {
        name.strip().lower()
        for name, _ in parse_qsl(query[1:].replace(";", "&"), keep_blank_values=True)
    }
    return not names.isdisjoint({ORDER, STATUS})
