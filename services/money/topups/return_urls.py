"""The URLs to which a payer may be sent back.

Such a URL has an allowed origin, and no browser, proxy or library could read another one in it.
"""

import re
from collections.abc import Collection
from urllib.parse import parse_qsl, urlencode

from core.refusals.money import TOPUP_REDIRECT_NOT_ALLOWED
from core.settings import origins
from core.settings.origins import LOOPBACK_WORD

MAX_REDIRECT_URL_CHARACTERS = 2_048
# The names that we add to the query. A URL that has them already could tell its page that the
# order was paid.
ORDER, STATUS = "order_id", "status"
# Only characters and escapes of RFC 3986, read strictly: an origin, then nothing or a path.
_REST = r"(?P<path>(?:/(?!/)(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})*)*)"
_TAIL = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*"
_ADDRESS = re.compile(
    rf"(?P<origin>{origins.ORIGIN.pattern}){_REST}"
    rf"(?P<query>\?{_TAIL})?(?P<fragment>#{_TAIL})?",
    re.IGNORECASE | re.ASCII,
)
# An escaped control character or backslash: a program that decodes it may read another URL.
_ESCAPED_TRICK = re.compile(r"%(?:[01][0-9a-f]|7f|5c)", re.IGNORECASE)


def check(url: str, allowed: Collection[str]) -> None:
    """Raises ``topup.redirect_not_allowed``."""
    most = MAX_REDIRECT_URL_CHARACTERS
    refusal = TOPUP_REDIRECT_NOT_ALLOWED(most=most, order=ORDER, status=STATUS)
    match = _ADDRESS.fullmatch(url) if len(url) <= most else None
    if match is None or _ESCAPED_TRICK.search(url):
        raise refusal
    if not match["path"] and (match["query"] or match["fragment"]):
        # Unless a path begins first, some programs read the text before a later @ as a user name.
        raise refusal
    # Some servers separate names at semicolons too.
    query = (match["query"] or "")[1:].replace(";", "&")
    names = {name.strip().lower() for name, _ in parse_qsl(query, keep_blank_values=True)}
    origin = origins.origin_of(match)
    if origin is None or not names.isdisjoint({ORDER, STATUS}):
        raise refusal
    is_own_machine = LOOPBACK_WORD in allowed and origins.is_loopback(origin)
    if origin not in allowed and not is_own_machine:
        raise refusal


def add_result(url: str, order_id: int, status: str) -> str:
    """Add the order and its status to the URL's query."""
    address, hash_mark, fragment = url.partition("#")
    separator = "&" if "?" in address else "?"
    result = urlencode({ORDER: order_id, STATUS: status})
    return f"{address}{separator}{result}{hash_mark}{fragment}"
