import secrets
from array import array

from core.refusals.requests import CURSOR_INVALID

# Ids stay below 2**53, so that a JavaScript number holds every one of them exactly.
MAX_ID = 2**53 - 1
MAX_UINT64 = 2**64 - 1

_BASE36 = "0123456789abcdefghijklmnopqrstuvwxyz"


def random_id() -> int:
    """Return an id of 1 to ``MAX_ID`` that reveals neither a row's age nor how many there are."""
    return secrets.randbelow(MAX_ID) + 1


def random_hash_id(length: int = 12) -> str:
    """Return a short public identifier of ``[a-z0-9]``: 62 random bits at the default length."""
    return "".join(secrets.choice(_BASE36) for _ in range(length))


def random_ids(count: int) -> list[int]:
    """Return many random ids at once, at a fraction of the cost of ``random_id``."""
    numbers = array("Q", secrets.token_bytes(8 * count))
    return [number >> 11 or 1 for number in numbers]


def of_cursor(cursor: str) -> int:
    """The id in a ``next_cursor``: the last of the page before. Raises ``cursor.invalid``."""
    if not cursor.isascii() or not cursor.isdigit() or len(cursor) > len(str(MAX_ID)):
        raise CURSOR_INVALID()
    return int(cursor)
