import secrets
from array import array
from itertools import accumulate

from core.errors.requests import CURSOR_INVALID

# Ids stay below 2**53, so that a JavaScript number holds every one of them exactly.
MAX_ID = 2**53 - 1
MAX_UINT64 = 2**64 - 1
# Between two ids that are made at once.
_MAX_GAP = 2**20

_BASE36 = "0123456789abcdefghijklmnopqrstuvwxyz"


def random_id() -> int:
    """Return an id of 1 to ``MAX_ID`` that reveals neither a row's age nor how many there are."""
    return secrets.randbelow(MAX_ID) + 1


def random_hash_id(length: int = 12) -> str:
    """Return a short public identifier of ``[a-z0-9]``: 62 random bits at the default length."""
    return "".join(secrets.choice(_BASE36) for _ in range(length))


def neighbouring_ids(count: int) -> list[int]:
    """Return rising ids for many rows that are made at once, from a random place on.

    They reveal no age and no number, as ``random_id`` does not, and each can be guessed from its
    neighbour with one chance in half a million. Rows that were made together have ids that are
    near each other, so that an index takes them on a few pages instead of one page a row.
    """
    gaps = array("I", secrets.token_bytes(4 * count))
    first = secrets.randbelow(MAX_ID - count * _MAX_GAP)
    return list(accumulate((gap % _MAX_GAP + 1 for gap in gaps), initial=first))[1:]


def of_cursor(cursor: str) -> int:
    """The id in a ``next_cursor``: the last of the page before. Raises ``cursor.invalid``."""
    if not cursor.isascii() or not cursor.isdigit() or len(cursor) > len(str(MAX_ID)):
        raise CURSOR_INVALID()
    return int(cursor)
