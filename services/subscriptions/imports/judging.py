"""Judges the rows of an import as far as the rows alone allow it.

Each row gets its normalised address or the reason why the row isn't applied. The database decides
later whether the person can be added (``judge_statements``).
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from core import clock
from services.accounts import email_addresses
from services.accounts.email_addresses import InvalidAddress
from services.subscriptions.imports.judged_rows import (
    CLEARED,
    DUPLICATE_CODE,
    EARLIER_ROW_REASON,
    STRICTER_ROW_REASON,
    JudgedRow,
)
from services.subscriptions.imports.rows import STRICTNESS, MemberRow, RejectedRecord
from services.subscriptions.imports.seen_addresses import SeenAddresses

# Rows that are judged together: checking addresses, and the database, are faster on many. A row
# may have a quarter of a million characters, so the characters of a batch are bounded too.
MAX_BATCH_ROWS = 2_000
MAX_BATCH_CHARACTERS = 1_000_000


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
                characters += sum(map(len, map(str, row.extras.left_out)))
            if characters >= MAX_BATCH_CHARACTERS:
                break
        if not batch:
            return
        yield list(_judge(batch, seen)), characters


def _judge(batch: list[MemberRow | RejectedRecord], seen: SeenAddresses) -> Iterator[JudgedRow]:
    members = [row for row in batch if isinstance(row, MemberRow)]
    normalised = email_addresses.normalise_all([row.email for row in members])
    strictest = _find_strictest(members, normalised)
    # The addresses for which an earlier row of the file is used.
    counted = set()
    for each, earlier in seen.add(strictest).items():
        if earlier >= strictest[each]:
            strictest[each] = earlier
            counted.add(each)
    found = iter(normalised)
    for row in batch:
        if isinstance(row, RejectedRecord):
            yield _rejected(row, row.code, row.reason)
            continue
        address = next(found)
        if isinstance(address, InvalidAddress):
            yield _rejected(row, "email.invalid", address.reason)
        elif row.problem is not None:
            yield _rejected(row, *row.problem)._replace(email=address)
        elif STRICTNESS[row.suppression] < strictest[address]:
            yield _rejected(row, DUPLICATE_CODE, STRICTER_ROW_REASON)
        elif address in counted:
            yield _rejected(row, DUPLICATE_CODE, EARLIER_ROW_REASON)
        else:
            counted.add(address)
            line, _, name, tier, expiry, suppression, cells, extras, _, clears_expiry = row
            paid_expiry = (
                CLEARED if clears_expiry else None if expiry is None else clock.iso(expiry)
            )
            left = suppression.value if row.is_opt_out else None
            # By place, not by name: half the time, for each row of a file.
            yield JudgedRow(line, address, name, tier, paid_expiry, left, None, None, cells, extras)


def _find_strictest(
    members: Sequence[MemberRow], addresses: Sequence[str | InvalidAddress]
) -> dict[str, int]:
    strictest: dict[str, int] = {}
    for row, address in zip(members, addresses, strict=True):
        if isinstance(address, str):
            strictest[address] = max(strictest.get(address, 0), STRICTNESS[row.suppression])
    return strictest


def _rejected(row: MemberRow | RejectedRecord | JudgedRow, code: str, reason: str) -> JudgedRow:
    return JudgedRow(line=row.line, code=code, reason=reason, cells=row.cells)
