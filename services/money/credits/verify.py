"""Proves that the ledger is as it was written: its accounts, entries and orders.

Its user and its number identify an entry, and its hash covers both. The ``id`` adds nothing, so
the hash leaves it out.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, Engine, Row, text

from core.lanes import Lane
from core.logging import get_logger
from services.jobs import upkeep
from services.money.credits.account_faults import ACCOUNTS, ENTRY_FAULTS
from services.money.credits.checkpoints import Checkpoint, CheckpointBook, Seal
from services.money.credits.order_faults import LAST_SETTLED_CHANGE, NEW_ORDERS, ORDER_FAULTS
from storage.long_reads import ReplicaFailed, view_of
from storage.resources import Resources

log = get_logger(__name__)

_MAX_TIME = timedelta(hours=6)
VERIFY_LEDGER = upkeep.register(
    upkeep.UpkeepKind(
        "credits.verify", every=timedelta(days=1), lane=Lane.UPKEEP, max_run=_MAX_TIME
    )
)
_MAX_BATCH_ROWS = 1_000


@dataclass(frozen=True)
class LedgerFault:
    """A contradiction in one account, entry or order.

    Attributes:
        user_id: the account's owner; ``None`` for an order that no user has claimed.
        seq: the entry's number; ``None`` for a fault of the account itself.
        order_id: the order that has the fault, or that the entry names.
    """

    user_id: int | None
    seq: int | None
    fault: str
    order_id: int | None = None


@dataclass
class LedgerReport:
    """What a run found, and what it read for that.

    Attributes:
        resumed: how many of the accounts were read from their checkpoint on.
        orders: how many orders were looked at; ``None`` for all of them.
        keys_gone: how many checkpoints were signed under a key that is not in the keyring, so that
            their accounts were read as a whole.
    """

    accounts: int = 0
    resumed: int = 0
    entries: int = 0
    orders: int | None = None
    keys_gone: int = 0
    faults: list[LedgerFault] = field(default_factory=list)


def verify(resources: Resources, *, full: bool) -> LedgerReport:
    """Verify from the checkpoints on, or everything; write how far all is well."""
    book, failures = CheckpointBook(resources), 0
    while True:
        try:
            with resources.long_reads.view(_MAX_TIME, failures=failures) as reading:
                return _Run(reading, book, is_whole=full).report()
        except ReplicaFailed:
            failures += 1


def verify_daily(resources: Resources) -> int:
    """Verify what is new, log the faults, and return their number."""
    report = verify(resources, full=False)
    for each in report.faults:
        place = {"user_id": each.user_id, "seq": each.seq, "order_id": each.order_id}
        log.error("ledger.fault", fault=each.fault, **place)
    return len(report.faults)


def run(reading: Engine, book: CheckpointBook | None = None, *, full: bool = True) -> LedgerReport:
    """Verify in one consistent view of the database; without a book no checkpoint is written.

    An account's balance is the sum of its entries, and the last ``balance_after``. Entries are
    numbered without gaps, and each continues the balance and the hash chain of the one before. The
    debt is the sum that refunds could not take, less the sum that was paid of it. An order has one
    topup entry if it was paid and has an owner, and otherwise none. The credits taken for an order
    are worth the money that its payer got back. Each change of an order's status was allowed.
    """
    with view_of(reading, _MAX_TIME) as connection:
        return _Run(connection, book, is_whole=full or book is None).report()


class _Run:
    def __init__(
        self, connection: Connection, book: CheckpointBook | None, *, is_whole: bool
    ) -> None:
        self._connection = connection.execution_options(stream_results=True)
        self._book = book
        self._is_whole = is_whole
        self._report = LedgerReport()
        self._faulty: set[int | None] = set()
        self._new_orders: set[int] = set()

    def report(self) -> LedgerReport:
        chosen = {"is_whole": self._is_whole, "distrusted": self._distrusted()}
        for row in self._rows(ENTRY_FAULTS, **chosen):
            self._blame(LedgerFault(row.user_id, row.seq, row.fault, row.order_id))
        reached: list[Checkpoint] = []
        for row in self._rows(ACCOUNTS, **chosen):
            self._count(row)
            if row.entries and row.user_id not in self._faulty:
                last_hash = bytes(row.hash)
                reached.append(
                    Checkpoint(row.user_id, row.last_seq, last_hash, row.balance, row.debt)
                )
            if len(reached) == _MAX_BATCH_ROWS:
                self._write(reached)
                reached = []
        self._write(reached)
        if self._book is not None:
            # What stands before a checkpoint is found by each run from now on.
            self._book.suspect(user_id for user_id in self._faulty if user_id is not None)
        self._verify_orders()
        return self._report

    def _distrusted(self) -> list[int]:
        """The users whose checkpoints say nothing; without a book, all of them."""
        if self._book is None:
            return list(self._connection.scalars(text("SELECT user_id FROM credit_checkpoints")))
        users = []
        for user_id, seq, seal in self._book.distrusted(self._connection):
            users.append(user_id)
            self._note(seal, LedgerFault(user_id, seq, "the checkpoint was not signed by us"))
        return users

    def _note(self, seal: Seal, forgery: LedgerFault) -> None:
        if seal is Seal.KEY_GONE:
            self._report.keys_gone += 1
        elif self._is_whole:
            # A run that reads everything needs no checkpoint, and writes a good one.
            self._report.faults.append(forgery)
        else:
            self._blame(forgery)

    def _count(self, row: Row[Any]) -> None:
        self._report.accounts += 1
        self._report.resumed += row.is_resumed
        self._report.entries += row.entries
        self._new_orders.update(row.order_ids or ())
        for fault in row.faults:
            self._blame(LedgerFault(row.user_id, None, fault))

    def _blame(self, fault: LedgerFault) -> None:
        self._report.faults.append(fault)
        self._faulty.add(fault.user_id)

    def _write(self, reached: list[Checkpoint]) -> None:
        if self._book is not None:
            self._book.write(reached)

    def _verify_orders(self) -> None:
        after, seal = None, Seal.GOOD
        if self._book is not None:
            after, seal = self._book.last_change(self._connection)
            if seal is not Seal.GOOD:
                forged = "the checkpoint of the orders was not signed by us"
                self._note(seal, LedgerFault(None, None, forged))
        faults_before = len(self._report.faults)
        for batch in self._order_batches(None if self._is_whole else after):
            for row in self._rows(ORDER_FAULTS, is_whole=batch is None, order_ids=batch or []):
                self._blame(LedgerFault(row.user_id, row.seq, row.fault, row.order_id))
        if self._book is None:
            return
        last = self._connection.scalar(text(LAST_SETTLED_CHANGE))
        if len(self._report.faults) > faults_before:
            if self._is_whole:
                # The runs after this one look at all orders, too.
                self._book.forget_last_change()
        elif last is not None and (self._is_whole or seal is not Seal.FORGED):
            self._book.write_last_change(last)

    def _order_batches(self, after: int | None) -> Iterator[list[int] | None]:
        """The orders to look at; ``None`` for all of them."""
        if after is None:
            yield None
            return
        self._new_orders.update(row.order_id for row in self._rows(NEW_ORDERS, after=after))
        self._report.orders = len(self._new_orders)
        ids = sorted(self._new_orders)
        for start in range(0, len(ids), _MAX_BATCH_ROWS):
            yield ids[start : start + _MAX_BATCH_ROWS]

    def _rows(self, query: str, **values: object) -> Iterator[Row[Any]]:
        for rows in self._connection.execute(text(query), values).partitions(_MAX_BATCH_ROWS):
            yield from rows
