"""Verifies that credit accounts, ledger entries and orders are consistent.

A ledger entry is identified by its owner and its number. The hash of a ledger entry covers the
owner and the number, so it need not cover the column ``id``.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, Row, text

from core.logging import get_logger
from services.credits.checkpoints import Checkpoint, CheckpointBook
from services.jobs.maintenance import register_maintenance
from storage.replica_reads import ReplicaFailed
from storage.resources import Resources

log = get_logger(__name__)

_MAX_BATCH_ROWS = 1_000
_MAX_TIME = timedelta(hours=6)
VERIFY_LEDGER = register_maintenance(
    "credits.verify",
    every=timedelta(days=1),
    max_run=_MAX_TIME,
    run=lambda resources, _: verify_daily(resources),
)

# The common beginning of the SQL queries ``ENTRY_FAULTS`` and ``ACCOUNTS``. Selects all users with
# ledger entries, a credit account or a checkpoint. The recursive expression ``holders`` finds all
# users with ledger entries by reading an index once per user. The checkpoints of the users in
# ``:distrusted`` are ignored. If ``:is_whole`` is true, all ledger entries are verified and
# compared with the checkpoints.
_ACCOUNTS = """
WITH RECURSIVE holders AS (
    SELECT min(user_id) AS user_id FROM credit_entries
    UNION ALL
    SELECT (SELECT min(e.user_id) FROM credit_entries AS e WHERE e.user_id > h.user_id)
    FROM holders AS h WHERE h.user_id IS NOT NULL
), begun AS (
    SELECT *, NOT :is_whole AND NOT is_suspect AS counts FROM credit_checkpoints
    WHERE user_id <> ALL(CAST(:distrusted AS bigint[]))
), accounts AS (
    SELECT user_id, h.user_id IS NOT NULL AS has_entries, a.user_id IS NOT NULL AS exists,
        a.balance, a.debt, a.last_seq, a.last_hash,
        b.seq AS verified_seq, b.hash AS verified_hash, coalesce(b.counts, false) AS is_resumed,
        CASE WHEN b.counts THEN b.seq ELSE 0 END AS from_seq,
        CASE WHEN b.counts THEN b.hash ELSE sha256('') END AS from_hash,
        CASE WHEN b.counts THEN b.balance ELSE 0 END AS from_balance,
        CASE WHEN b.counts THEN b.debt ELSE 0 END AS from_debt
    FROM (SELECT user_id FROM holders WHERE user_id IS NOT NULL) AS h
    FULL JOIN credit_accounts AS a USING (user_id)
    FULL JOIN begun AS b USING (user_id)
)
"""

ENTRY_FAULTS = (
    _ACCOUNTS  # noqa: S608 - all of it stands here
    + """
SELECT a.user_id, c.seq, f.fault, c.order_id
FROM accounts AS a CROSS JOIN LATERAL (
    SELECT e AS entry, e.seq, e.delta, e.balance_after, e.hash, e.action, e.order_id,
        lag(e.seq, 1, a.from_seq) OVER w AS seq_before,
        lag(e.balance_after, 1, a.from_balance) OVER w AS balance_before,
        lag(e.hash, 1, a.from_hash) OVER w AS hash_before
    FROM credit_entries AS e WHERE e.user_id = a.user_id AND e.seq > a.from_seq
    WINDOW w AS (ORDER BY e.seq)
) AS c CROSS JOIN LATERAL (VALUES
    (c.seq <> c.seq_before + 1, 'the previous entry is missing'),
    (c.balance_after <> c.balance_before + c.delta, 'balance_after does not match delta'),
    (c.balance_after < 0, 'the balance is negative'),
    (c.hash <> credit_entry_hash(c.hash_before, c.entry), 'the hash does not match the entry'),
    (CASE
        WHEN c.action IN ('topup', 'grant', 'consume_reversal') THEN c.delta <= 0
        WHEN c.action IN ('consume', 'debt_payment') THEN c.delta >= 0
        WHEN c.action = 'topup_refund' THEN c.delta > 0
        ELSE c.delta = 0
    END, 'the delta does not match the action')
) AS f (is_wrong, fault)
WHERE f.is_wrong
"""
)

# For each credit account, selects the ledger errors, the last ledger entry, and the number of
# ledger entries after the checkpoint.
ACCOUNTS = (
    _ACCOUNTS  # noqa: S608 - all of it stands here
    + """
SELECT a.user_id, a.is_resumed, s.entries, s.order_ids, s.last_seq, l.hash, a.balance, a.debt,
    ARRAY(SELECT f.fault FROM (VALUES
        (a.verified_seq IS NOT NULL AND NOT EXISTS (SELECT FROM credit_entries AS e
            WHERE e.user_id = a.user_id AND e.seq = a.verified_seq AND e.hash = a.verified_hash),
            'the entry at the checkpoint was changed'),
        (a.has_entries AND NOT a.exists, 'the entries have no account'),
        (a.balance < 0 OR a.debt < 0, 'the balance or the debt is negative'),
        (a.balance <> a.from_balance + s.total,
            'the balance does not match the sum of the entries'),
        (a.debt <> a.from_debt + s.owed, 'the debt does not match the entries'),
        (a.balance <> coalesce(l.balance_after, a.from_balance),
            'the balance does not match the last entry'),
        (a.last_seq <> s.last_seq OR a.last_seq <> a.from_seq + s.entries,
            'the last entries are missing'),
        (a.last_hash <> coalesce(l.hash, a.from_hash),
            'the account does not match the hash of the last entry')
    ) AS f (is_wrong, fault) WHERE f.is_wrong) AS faults
FROM accounts AS a CROSS JOIN LATERAL (
    SELECT count(*) AS entries, coalesce(max(e.seq), a.from_seq) AS last_seq,
        coalesce(sum(e.delta), 0) AS total,
        coalesce(sum(CASE
            WHEN e.action = 'topup_refund' AND e.delta = 0 THEN e.amount
            WHEN e.action = 'debt_payment' THEN -e.amount ELSE 0
        END), 0) AS owed,
        array_agg(DISTINCT e.order_id) FILTER (WHERE e.order_id IS NOT NULL) AS order_ids
    FROM credit_entries AS e WHERE e.user_id = a.user_id AND e.seq > a.from_seq
) AS s LEFT JOIN credit_entries AS l ON l.user_id = a.user_id AND l.seq = s.last_seq
"""
)

# Selects the orders whose status has changed since the last checkpoint.
NEW_ORDERS = "SELECT DISTINCT order_id FROM payment_order_changes WHERE id > :after"

# Selects the newest status change that is old enough for a checkpoint. A checkpoint doesn't cover
# the last hour of changes, because an open transaction could still commit a change with a smaller
# id.
LAST_SETTLED_CHANGE = """
SELECT c.id FROM payment_order_changes AS c
WHERE c.created_at < (
    SELECT created_at FROM payment_order_changes ORDER BY id DESC LIMIT 1) - interval '1 hour'
ORDER BY c.id DESC LIMIT 1
"""

# Selects the errors in the orders with the ids ``:order_ids``, or in all orders if ``:order_ids``
# is NULL. The SQL statement repeats the rules of ``services.credits.settlement``, so that an error
# in one implementation is detected.
ORDER_FAULTS = """
WITH told AS (
    SELECT order_id,
        count(*) FILTER (WHERE action = 'topup') AS topups,
        count(DISTINCT user_id) AS users, min(user_id) AS user_id,
        coalesce(sum(amount) FILTER (WHERE action = 'topup'), 0) AS credited,
        coalesce(sum(amount) FILTER (WHERE action = 'topup_refund'), 0)
            - coalesce(sum(amount) FILTER (WHERE action = 'adjust'), 0) AS taken
    FROM credit_entries
    WHERE order_id IS NOT NULL AND (:is_whole OR order_id = ANY(CAST(:order_ids AS bigint[])))
    GROUP BY order_id
), history AS (
    SELECT c.order_id, max(c.id) AS last_id, bool_or(
        c.from_status IS DISTINCT FROM c.status_before
        OR (c.from_status IS NOT NULL AND t.to_status IS NULL)
    ) AS is_broken
    FROM (SELECT *, lag(to_status) OVER (PARTITION BY order_id ORDER BY id) AS status_before
        FROM payment_order_changes
        WHERE :is_whole OR order_id = ANY(CAST(:order_ids AS bigint[]))) AS c
    LEFT JOIN payment_order_transitions AS t USING (from_status, to_status)
    GROUP BY c.order_id
), worth AS (
    SELECT o.id, least(o.amount_minor, greatest(0, o.refunded_minor - o.refunds_failed_minor)
            + o.disputes_minor - o.disputes_ended_minor + o.disputes_lost_minor) AS back,
        o.dispute IS DISTINCT FROM CASE
            WHEN o.disputes_minor > o.disputes_ended_minor THEN 'open'
            WHEN o.disputes_lost_minor > 0 THEN 'lost'
            WHEN o.disputes_minor > 0 THEN 'won' END AS is_misnamed,
        o.user_id IS NOT NULL AND o.status IN ('paid', 'disputed', 'refunded')
            AND o.resolution IS DISTINCT FROM 'refunded' AS is_credited
    FROM payment_orders AS o
    WHERE :is_whole OR o.id = ANY(CAST(:order_ids AS bigint[]))
)
SELECT coalesce(o.user_id, t.user_id) AS user_id, NULL AS seq, f.fault,
    coalesce(o.id, t.order_id) AS order_id
FROM payment_orders AS o
JOIN worth AS w USING (id)
LEFT JOIN history AS h ON h.order_id = o.id
LEFT JOIN payment_order_changes AS l ON l.id = h.last_id
FULL JOIN told AS t ON t.order_id = o.id
CROSS JOIN LATERAL (VALUES
    (o.id IS NULL, 'the order of the entries does not exist'),
    (w.is_credited AND coalesce(t.topups, 0) <> 1, 'a paid order has no topup entry'),
    (NOT w.is_credited AND t.topups > 0, 'an unpaid order has a topup entry'),
    (t.users > 1 OR t.user_id <> o.user_id, 'an entry of the order belongs to another user'),
    (o.credited <> coalesce(t.credited, 0), 'the credited amount does not match the entries'),
    (o.taken <> coalesce(t.taken, 0), 'the reclaimed amount does not match the entries'),
    (w.is_credited AND o.credited <> o.credit_amount, 'the order was not fully credited'),
    -- Rounded up, in whole numbers: ten-thousandths of a credit for minor units of money.
    (w.is_credited AND o.taken <> div(
        o.credit_amount * 10000 * w.back + o.amount_minor - 1, o.amount_minor) / 10000,
        'the reclaimed amount does not match the refund'),
    (w.is_misnamed, 'the dispute state does not match the disputed amounts'),
    (o.status = 'paid_unclaimed' AND o.user_id IS NOT NULL,
        'the order has a user but is unclaimed'),
    (o.status IN ('paid', 'paid_unclaimed', 'disputed') AND o.paid_at IS NULL,
        'the order is paid but has no payment time'),
    (o.status IS DISTINCT FROM l.to_status, 'the status does not match the last change'),
    (h.is_broken, 'the status history has a gap')
) AS f (is_wrong, fault)
WHERE f.is_wrong
"""


@dataclass(frozen=True)
class LedgerFault:
    """An inconsistency in an account, a ledger entry or an order.

    Attributes:
        user_id: the id of the account's owner, or ``None`` for an order that no user has claimed.
        seq: the number of the faulty ledger entry, if the fault is in a single entry.
    """

    user_id: int | None
    seq: int | None
    fault: str
    order_id: int | None = None


@dataclass
class LedgerReport:
    """The faults that a verification has found, and how much has been verified.

    Attributes:
        resumed: the number of accounts whose verification started at a checkpoint.
        orders: the number of verified orders, or ``None`` if all orders were verified.
    """

    accounts: int = 0
    resumed: int = 0
    entries: int = 0
    orders: int | None = None
    faults: list[LedgerFault] = field(default_factory=list)


def verify_ledger(resources: Resources, *, full: bool) -> LedgerReport:
    """Verify the ledger, and write new checkpoints for the accounts that pass verification.

    If ``full`` is false, ledger entries before a checkpoint are skipped.
    """
    book = CheckpointBook(resources)
    failures = 0
    while True:
        try:
            with resources.replica_reads.view(_MAX_TIME, failures=failures) as connection:
                return _Verification(connection, book, is_whole=full).run()
        except ReplicaFailed:
            failures += 1


def verify_daily(resources: Resources) -> int:
    report = verify_ledger(resources, full=False)
    for fault in report.faults:
        place = {"user_id": fault.user_id, "seq": fault.seq, "order_id": fault.order_id}
        log.error("ledger.fault", fault=fault.fault, **place)
    return len(report.faults)


class _Verification:
    def __init__(self, connection: Connection, book: CheckpointBook, *, is_whole: bool) -> None:
        self._connection = connection.execution_options(stream_results=True)
        self._book = book
        self._is_whole = is_whole
        self._report = LedgerReport()
        self._faulty_users: set[int | None] = set()
        self._new_orders: set[int] = set()

    def run(self) -> LedgerReport:
        unverified_users = self._book.unverified_users(self._connection)
        values = {"is_whole": self._is_whole, "distrusted": unverified_users}
        for row in self._rows(ENTRY_FAULTS, **values):
            self._report_fault(LedgerFault(row.user_id, row.seq, row.fault, row.order_id))
        checkpoints: list[Checkpoint] = []
        for row in self._rows(ACCOUNTS, **values):
            self._report.accounts += 1
            self._report.resumed += row.is_resumed
            self._report.entries += row.entries
            self._new_orders.update(row.order_ids or ())
            for fault in row.faults:
                self._report_fault(LedgerFault(row.user_id, None, fault))
            if row.entries and row.user_id not in self._faulty_users:
                checkpoints.append(
                    Checkpoint(row.user_id, row.last_seq, bytes(row.hash), row.balance, row.debt)
                )
            if len(checkpoints) == _MAX_BATCH_ROWS:
                self._book.write(checkpoints)
                checkpoints = []
        self._book.write(checkpoints)
        # Mark the checkpoints of accounts with ledger errors as suspect, because the error may be
        # in entries that the checkpoint covers.
        self._book.mark_suspect(user_id for user_id in self._faulty_users if user_id is not None)
        self._verify_orders()
        return self._report

    def _report_fault(self, fault: LedgerFault) -> None:
        self._report.faults.append(fault)
        self._faulty_users.add(fault.user_id)

    def _verify_orders(self) -> None:
        after = self._book.last_verified_change(self._connection)
        faults_before = len(self._report.faults)
        # A batch that is ``None`` stands for all orders.
        batches: list[list[int] | None] = [None]
        if not self._is_whole and after is not None:
            self._new_orders.update(row.order_id for row in self._rows(NEW_ORDERS, after=after))
            self._report.orders = len(self._new_orders)
            ids = sorted(self._new_orders)
            starts = range(0, len(ids), _MAX_BATCH_ROWS)
            batches = [ids[start : start + _MAX_BATCH_ROWS] for start in starts]
        for batch in batches:
            for row in self._rows(ORDER_FAULTS, is_whole=batch is None, order_ids=batch or []):
                self._report_fault(LedgerFault(row.user_id, row.seq, row.fault, row.order_id))
        newest_change = self._connection.scalar(text(LAST_SETTLED_CHANGE))
        if len(self._report.faults) > faults_before:
            if self._is_whole:
                self._book.write_last_verified_change(None)
        elif newest_change is not None:
            self._book.write_last_verified_change(newest_change)

    def _rows(self, query: str, **values: object) -> Iterator[Row[Any]]:
        for rows in self._connection.execute(text(query), values).partitions(_MAX_BATCH_ROWS):
            yield from rows
