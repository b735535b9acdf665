"""The URL to which a payer returns after paying."""

from collections.abc import Collection
from urllib.parse import parse_qsl, urlencode

from core.errors.money import TOPUP_REDIRECT_NOT_ALLOWED
from core.settings import Settings, origins
from core.settings.origins import MAX_URL_CHARACTERS

# The names that we add to the query. A URL that has them already could tell its page that the
# order was paid.
ORDER, STATUS = "order_id", "status"
# The page of the console to which an owner comes back who ordered there.
CONSOLE_RETURN_PATH = "/console/credits/returned"


def console_url(settings: Settings) -> str:
    """Our own page, which needs no allowance."""
    return f"{settings.public_base}{CONSOLE_RETURN_PATH}"


def check(url: str, allowed: Collection[str]) -> None:
    """Raises ``topup.redirect_not_allowed``."""
    found = origins.read_url(url)
    # Some servers separate names at semicolons too.
    query = "" if found is None else found.query.replace(";", "&")
    names = {name.strip().lower() for name, _ in parse_qsl(query, keep_blank_values=True)}
    if found is None or not names.isdisjoint({ORDER, STATUS}) or not found.is_of(allowed):
        raise TOPUP_REDIRECT_NOT_ALLOWED(most=MAX_URL_CHARACTERS, order=ORDER, status=STATUS)


def add_result(url: str, order_id: int, status: str) -> str:
    """Add the order and its status to the URL's query."""
    address, hash_mark, fragment = url.partition("#")
    separator = "&" if "?" in address else "?"
    result = urlencode({ORDER: order_id, STATUS: status})
    return f"{address}{separator}{result}{hash_mark}{fragment}"
