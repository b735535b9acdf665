"""Validates the rows of an import without accessing the database.

``columns.consent_interpreter.ConsentReader`` has already decided which rows are opt-outs.

The SQL statements in ``judge_statements`` decide whether the person in a valid row can be added.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from core import clock
from services.accounts import email_addresses
from services.accounts.email_addresses import InvalidAddress
from services.subscriptions.imports.chunks.seen_addresses import SeenAddresses
from services.subscriptions.imports.judged_rows import (
    CLEARED,
    DUPLICATE_CODE,
    EARLIER_ROW_REASON,
    STRICTER_ROW_REASON,
    JudgedRow,
    reject_row,
)
from services.subscriptions.imports.rows import STRICTNESS, MemberRow, RejectedRecord

# Rows are validated in batches, because looking up many addresses at once is faster than one at a
# time. The number of characters in a batch is limited, because a single row may have a quarter of a
# million characters.
MAX_BATCH_ROWS = 2_000
MAX_BATCH_CHARACTERS = 1_000_000


def judge_rows(
    rows: Iterable[MemberRow | RejectedRecord], seen: SeenAddresses, max_rows: int = MAX_BATCH_ROWS
) -> Iterator[tuple[list[JudgedRow], int]]:
    unread_rows = iter(rows)
    while True:
        batch = []
        characters = 0
        for row in islice(unread_rows, min(max_rows, MAX_BATCH_ROWS)):
            batch.append(row)
            characters += sum(map(len, row.cells))
            if isinstance(row, MemberRow) and row.extras is not None:
                # The batch size includes the messages about omitted values, because the messages
                # are much longer than the values.
                characters += sum(map(len, map(str, row.extras.left_out)))
            if characters >= MAX_BATCH_CHARACTERS:
                break
        if not batch:
            return
        yield list(_judge_batch(batch, seen)), characters


def _judge_batch(
    batch: list[MemberRow | RejectedRecord], seen: SeenAddresses
) -> Iterator[JudgedRow]:
    members = [row for row in batch if isinstance(row, MemberRow)]
    normalised = email_addresses.normalise_addresses([row.email for row in members])
    strictest = _find_strictest(members, normalised)
    # The addresses of rows that have already been accepted. Further rows with an accepted address
    # are duplicates.
    used = set()
    for address, earlier in seen.add(strictest).items():
        if earlier >= strictest[address]:
            strictest[address] = earlier
            used.add(address)
    addresses = iter(normalised)
    for row in batch:
        if isinstance(row, RejectedRecord):
            yield reject_row(row, row.code, row.reason)
            continue
        result = next(addresses)
        if isinstance(result, InvalidAddress):
            yield reject_row(row, "email.invalid", result.reason)
        elif row.problem is not None:
            yield reject_row(row, *row.problem)._replace(email=result)
        elif STRICTNESS[row.suppression] < strictest[result]:
            yield reject_row(row, DUPLICATE_CODE, STRICTER_ROW_REASON)
        elif result in used:
            yield reject_row(row, DUPLICATE_CODE, EARLIER_ROW_REASON)
        else:
            used.add(result)
            yield _accept_row(row, result)


def _accept_row(row: MemberRow, address: str) -> JudgedRow:
    paid_expiry = None if row.paid_expiry is None else clock.format_timestamp(row.paid_expiry)
    if row.clears_expiry:
        paid_expiry = CLEARED
    opt_out = row.suppression.value if row.is_opt_out else None
    # Pass the arguments by position, because keyword arguments are too slow for the target of the
    # benchmark ``import-1m``.
    values = row.name, row.tier, paid_expiry, opt_out, None, None, row.cells, row.extras
    return JudgedRow(row.line, address, *values)


def _find_strictest(
    members: Sequence[MemberRow], addresses: Sequence[str | InvalidAddress]
) -> dict[str, int]:
    strictest: dict[str, int] = {}
    for row, address in zip(members, addresses, strict=True):
        if isinstance(address, str):
            strictest[address] = max(strictest.get(address, 0), STRICTNESS[row.suppression])
    return strictest
