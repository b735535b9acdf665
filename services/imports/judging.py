"""What can be said of a row by the file alone: no address, or one that came before."""

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import islice

from core import clock
from services import addresses
from services.addresses import Refused
from services.imports.entries import DUPLICATE_CODE, Entry
from services.imports.reading import Problem, Row, Standing

# Looked at together: the address rules are faster on many.
_AT_ONCE = 2_000
# 128 bits: two addresses of one file never share them.
_DIGEST_BYTES = 16


class Seen:
    """The addresses of one file so far, in a temporary database of bounded memory.

    SQLite keeps it in a file without a name, deleted by the system when it is closed: a set of
    millions would outgrow the worker.
    """

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        for setting in ("journal_mode = OFF", "synchronous = OFF", "cache_size = -8000"):
            self._database.execute(f"PRAGMA {setting}")
        self._database.execute("CREATE TABLE seen (digest BLOB PRIMARY KEY) WITHOUT ROWID")
        self._database.execute("BEGIN")

    def is_new(self, address: str) -> bool:
        """Whether this is the first time; from now on it is not."""
        digest = hashlib.blake2b(address.encode(), digest_size=_DIGEST_BYTES).digest()
        with closing(
            self._database.execute("INSERT OR IGNORE INTO seen VALUES (?)", (digest,))
        ) as cursor:
            return cursor.rowcount == 1

    def close(self) -> None:
        self._database.close()


def judged(rows: Iterable[Row | Problem], seen: Seen) -> Iterator[Entry]:
    """Each row with its normalised address, or with the reason why it is not applied."""
    coming = iter(rows)
    while batch := list(islice(coming, _AT_ONCE)):
        found = iter(addresses.normalise_all([row.email for row in batch if isinstance(row, Row)]))
        for row in batch:
            if isinstance(row, Problem):
                yield _refused(row.line, row.code, row.reason, row.columns)
            else:
                yield _entry(row, next(found), seen)


def _entry(row: Row, address: str | Refused, seen: Seen) -> Entry:
    if isinstance(address, Refused):
        return _refused(row.line, "email.invalid", address.reason, row.columns)
    if not seen.is_new(address):
        reason = "The address came before in the same file."
        return _refused(row.line, DUPLICATE_CODE, reason, row.columns)
    return Entry(
        line=row.line,
        email=address,
        name=row.name,
        tier=row.tier,
        paid_expiry=None if row.paid_expiry is None else clock.iso(row.paid_expiry),
        left=None if row.standing is Standing.WANTED else row.standing.value,
        code=None,
        reason=None,
        cells=row.columns,
    )


def _refused(line: int, code: str, reason: str, cells: Iterable[str]) -> Entry:
    return Entry(line, "", "", None, None, None, code, reason, list(cells))
