"""What can be said of a row by the file alone: no address, or one that came before."""

import sqlite3
from collections.abc import Iterable, Iterator
from itertools import islice

from core import clock
from services.mailing.imports.entries import DUPLICATE_CODE, JudgedRow
from services.mailing.imports.reading import MemberRow, RejectedRecord, SuppressionStatus
from services.people import email_addresses
from services.people.email_addresses import InvalidAddress

# Looked at together: the rules of addresses, and the database, are faster on many. A row may have a
# quarter of a million characters, and so many of those would outgrow the worker.
MAX_BATCH_ROWS = 2_000
MAX_BATCH_CHARACTERS = 1_000_000
# Addresses of one file that are kept at hand: some ten megabytes, and all of any one request.
MAX_ADDRESSES_IN_MEMORY = 100_000


class SeenAddresses:
    """The addresses of one file so far, in bounded memory.

    What is beyond the first ones goes to a temporary SQLite database, in a file without a name that
    the system deletes when it is closed: a set of millions would outgrow the worker.
    """

    def __init__(self) -> None:
        self._first: set[str] = set()
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        for setting in ("journal_mode = OFF", "synchronous = OFF", "cache_size = -8000"):
            self._database.execute(f"PRAGMA {setting}")
        self._database.execute("CREATE TABLE seen (address TEXT PRIMARY KEY) WITHOUT ROWID")
        self._database.execute("BEGIN")

    def add(self, found: list[str]) -> set[str]:
        """Take these in; returns which of them came before, in an earlier call."""
        before = self._first.intersection(found)
        fresh = set(found) - before
        if len(self._first) < MAX_ADDRESSES_IN_MEMORY:
            self._first |= fresh
            return before
        return before | self._add_to_database(fresh)

    def _add_to_database(self, found: set[str]) -> set[str]:
        marks = ",".join("?" * len(found))
        query = f"SELECT address FROM seen WHERE address IN ({marks})"  # noqa: S608 - marks alone
        before = {address for (address,) in self._database.execute(query, list(found))}
        # In the order of the index, so that neighbours land on the same page.
        fresh = sorted(found - before)
        self._database.executemany("INSERT INTO seen VALUES (?)", zip(fresh, strict=True))
        return before

    def close(self) -> None:
        self._database.close()


def judge_rows(
    rows: Iterable[MemberRow | RejectedRecord], seen: SeenAddresses, at_once: int = MAX_BATCH_ROWS
) -> Iterator[tuple[list[JudgedRow], int]]:
    """Each row with its normalised address, or with the reason why it is not applied.

    They come ``at_once`` at most, with the number of their characters.
    """
    coming = iter(rows)
    while True:
        batch, characters = _batch(coming, at_once)
        if not batch:
            return
        yield list(_judge(batch, seen)), characters


def _batch(
    coming: Iterator[MemberRow | RejectedRecord], at_once: int
) -> tuple[list[MemberRow | RejectedRecord], int]:
    batch, characters = [], 0
    for row in islice(coming, at_once):
        batch.append(row)
        characters += sum(map(len, row.columns))
        if characters >= MAX_BATCH_CHARACTERS:
            break
    return batch, characters


def _judge(batch: list[MemberRow | RejectedRecord], seen: SeenAddresses) -> Iterator[JudgedRow]:
    normalised = email_addresses.normalise_all(
        [row.email for row in batch if isinstance(row, MemberRow)]
    )
    came_before = seen.add([each for each in normalised if isinstance(each, str)])
    found = iter(normalised)
    for row in batch:
        if isinstance(row, RejectedRecord):
            yield _refused(row, row.code, row.reason)
            continue
        address = next(found)
        if isinstance(address, InvalidAddress):
            yield _refused(row, "email.invalid", address.reason)
        elif address in came_before:
            yield _refused(row, DUPLICATE_CODE, "The address came before in the same file.")
        else:
            came_before.add(address)
            yield _wanted(row, address)


def _wanted(row: MemberRow, address: str) -> JudgedRow:
    line, _, name, tier, paid_expiry, standing, cells = row
    expiry = None if paid_expiry is None else clock.iso(paid_expiry)
    left = None if standing is SuppressionStatus.WANTED else standing.value
    return JudgedRow(line, address, name, tier, expiry, left, None, None, cells)


def _refused(row: MemberRow | RejectedRecord, code: str, reason: str) -> JudgedRow:
    return JudgedRow(row.line, "", "", None, None, None, code, reason, row.columns)
