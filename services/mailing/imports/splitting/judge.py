"""Judges rows by their file alone: no valid address, or an address that came before."""

import sqlite3
from collections.abc import Iterable, Iterator
from itertools import islice

from core import clock
from core.refusals.imports import IMPORT_TOO_MANY_ADDRESSES
from services.mailing.imports.chunks import DUPLICATE_CODE, JudgedRow
from services.mailing.imports.mapping.rows import MemberRow, RejectedRecord
from services.people import email_addresses
from services.people.email_addresses import InvalidAddress

# Rows that are judged together: checking addresses, and the database, are faster on many. One row
# may have a quarter of a million characters, so the characters of a batch are bounded too.
MAX_BATCH_ROWS = 2_000
MAX_BATCH_CHARACTERS = 1_000_000
# Addresses of one file that are kept in memory: some ten megabytes, and enough for any request.
MAX_ADDRESSES_IN_MEMORY = 100_000
# The other addresses of one file, on disk: some twenty million of the usual length. A bulk worker
# has a few such databases at a time (``splitting.split``).
MAX_SEEN_BYTES = 1024**3


class SeenAddresses:
    """The addresses of one file so far, in bounded memory and on a bounded part of the disk.

    Further addresses go to a temporary SQLite database, since a set of millions would outgrow the
    worker. Its file has no name, and the system deletes it when it is closed. It is in the folder
    that ``SQLITE_TMPDIR`` or ``TMPDIR`` names.
    """

    def __init__(self, max_bytes: int = MAX_SEEN_BYTES) -> None:
        self._first: set[str] = set()
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        for setting in ("journal_mode = OFF", "synchronous = OFF", "cache_size = -8000"):
            self._database.execute(f"PRAGMA {setting}")
        [(page_bytes,)] = self._database.execute("PRAGMA page_size")
        self._database.execute(f"PRAGMA max_page_count = {max_bytes // page_bytes}")
        self._database.execute("CREATE TABLE seen (address TEXT PRIMARY KEY) WITHOUT ROWID")
        self._database.execute("BEGIN")

    def add(self, found: list[str]) -> set[str]:
        """Add these addresses; returns those of them that an earlier call added.

        Raises ``import.too_many_addresses`` when there is no room for more.
        """
        before = self._first.intersection(found)
        fresh = set(found) - before
        if len(self._first) < MAX_ADDRESSES_IN_MEMORY:
            self._first |= fresh
            return before
        try:
            return before | self._add_to_database(fresh)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_FULL:
                raise
            raise IMPORT_TOO_MANY_ADDRESSES() from error

    def _add_to_database(self, fresh: set[str]) -> set[str]:
        if not fresh:
            return set()
        # In the order of the index, so that neighbours land on the same page.
        added = sorted(fresh)
        rows = ",".join(["(?)"] * len(added))
        insert = f"INSERT INTO seen VALUES {rows} ON CONFLICT DO NOTHING RETURNING address"  # noqa: S608 - marks alone
        return fresh.difference(address for (address,) in self._database.execute(insert, added))

    def close(self) -> None:
        self._database.close()


def judge_rows(
    rows: Iterable[MemberRow | RejectedRecord], seen: SeenAddresses, at_once: int = MAX_BATCH_ROWS
) -> Iterator[tuple[list[JudgedRow], int]]:
    """Batches of at most ``at_once`` rows, each batch with the number of its characters.

    Each row has its normalised address, or the reason why it is not applied.
    """
    unread = iter(rows)
    while True:
        batch, characters = [], 0
        for row in islice(unread, at_once):
            batch.append(row)
            characters += sum(map(len, row.cells))
            if isinstance(row, MemberRow) and row.extras is not None:
                # Much longer than the cells that don't fit.
                characters += sum(map(len, row.extras.left_out))
            if characters >= MAX_BATCH_CHARACTERS:
                break
        if not batch:
            return
        yield list(_judge(batch, seen)), characters


def _judge(batch: list[MemberRow | RejectedRecord], seen: SeenAddresses) -> Iterator[JudgedRow]:
    normalised = email_addresses.normalise_all(
        [row.email for row in batch if isinstance(row, MemberRow)]
    )
    came_before = seen.add([each for each in normalised if isinstance(each, str)])
    found = iter(normalised)
    for row in batch:
        if isinstance(row, RejectedRecord):
            yield _rejected(row, row.code, row.reason)
            continue
        address = next(found)
        if isinstance(address, InvalidAddress):
            yield _rejected(row, "email.invalid", address.reason)
        elif address in came_before:
            yield _rejected(row, DUPLICATE_CODE, "The address came before in the same file.")
        else:
            came_before.add(address)
            line, _, name, tier, expiry, suppression, cells, extras = row
            paid_expiry = None if expiry is None else clock.iso(expiry)
            left = suppression.value if row.left else None
            # By place, not by name: half the time, for each row of a file.
            yield JudgedRow(line, address, name, tier, paid_expiry, left, None, None, cells, extras)


def _rejected(row: MemberRow | RejectedRecord, code: str, reason: str) -> JudgedRow:
    return JudgedRow(line=row.line, code=code, reason=reason, cells=row.cells)
