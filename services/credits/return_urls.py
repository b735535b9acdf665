"""Checks and extends the URL to which the payer returns after a payment."""

from collections.abc import Collection
from urllib.parse import parse_qsl, urlencode

from core.errors.money import TOPUP_REDIRECT_NOT_ALLOWED
from core.settings import Settings, origins
from core.settings.origins import MAX_URL_CHARACTERS

# The query parameters that ``add_result`` adds to a return URL. A return URL that already contains
# ``order_id`` or ``status`` is rejected, because it could falsely claim that the order was paid.
ORDER = "order_id"
STATUS = "status"
# The console page to which the payer returns after paying for an order from the console.
CONSOLE_RETURN_PATH = "/console/credits/returned"


def console_url(settings: Settings) -> str:
    """Return the URL of the console's return page, which is always an allowed return URL."""
    return f"{settings.public_base}{CONSOLE_RETURN_PATH}"


def check_return_url(url: str, allowed: Collection[str]) -> None:
    address = origins.read_url(url)
    # Like some web servers, treat semicolons in the query as ampersands.
    query = "" if address is None else address.query.replace(";", "&")
    names = {name.strip().lower() for name, _ in parse_qsl(query, keep_blank_values=True)}
    if address is None or not names.isdisjoint({ORDER, STATUS}) or not address.is_allowed(allowed):
        raise TOPUP_REDIRECT_NOT_ALLOWED(most=MAX_URL_CHARACTERS, order=ORDER, status=STATUS)


def add_result(url: str, order_id: int, status: str) -> str:
    address, hash_mark, fragment = url.partition("#")
    separator = "&" if "?" in address else "?"
    result = urlencode({ORDER: order_id, STATUS: status})
    return f"{address}{separator}{result}{hash_mark}{fragment}"
