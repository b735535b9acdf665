"""Generates ids, and parses pagination cursors."""

import secrets
from array import array
from itertools import accumulate
from typing import NewType

from core.errors.requests import CURSOR_INVALID

# An account owns data, such as lists and credits. A person logs in and acts in an account. The two
# ids have different types, so that mypy rejects one in place of the other.
AccountId = NewType("AccountId", int)
PersonId = NewType("PersonId", int)

# Ids stay below 2**53, so that a JavaScript number represents every id exactly.
MAX_ID = 2**53 - 1
MAX_UINT64 = 2**64 - 1
# The largest difference between two consecutive ids of one batch.
_MAX_GAP = 2**20

_BASE36 = "0123456789abcdefghijklmnopqrstuvwxyz"


def random_id() -> int:
    """Return a random row id, which reveals neither the row's age nor the number of rows."""
    return secrets.randbelow(MAX_ID) + 1


def random_hash_id(length: int = 12) -> str:
    """Return lower-case letters and digits, with 62 random bits for the default length."""
    return "".join(secrets.choice(_BASE36) for _ in range(length))


def neighbouring_ids(count: int) -> list[int]:
    """Return ascending ids for a batch of new rows, starting at a random number.

    The ids of a batch are close together, so that a database index stores them on a few pages. Even
    close to a known id, only about one in half a million numbers is the id of a row.
    """
    gaps = array("I", secrets.token_bytes(4 * count))
    first = secrets.randbelow(MAX_ID - count * _MAX_GAP)
    return list(accumulate((gap % _MAX_GAP + 1 for gap in gaps), initial=first))[1:]


def parse_id_cursor(cursor: str) -> int:
    """Return the id of the last row that the client has received."""
    if not cursor.isascii() or not cursor.isdigit() or len(cursor) > len(str(MAX_ID)):
        raise CURSOR_INVALID()
    return int(cursor)
