"""Proves that the ledger is as it was written, for all accounts, entries and orders.

Its user and its number identify an entry, and its hash covers both. The ``id`` adds nothing, so
the hash leaves it out.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import Engine, text

from services.money.credits.order_faults import ORDER_FAULTS

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


def faults(engine: Engine) -> Iterator[LedgerFault]:
    """Yield every fault as it is found, in one consistent view of the database.

    An account's balance is the sum of its entries, and the last ``balance_after``. Entries are
    numbered without gaps, and each continues the balance and the hash chain of the one before. The
    debt is the sum that refunds could not take, less the sum that was paid of it. An order has one
    topup entry if it was paid and has an owner, and otherwise none. The credits taken for an order
    are worth the money that its payer got back. Each change of an order's status was allowed.
    """
    snapshot = engine.execution_options(isolation_level="REPEATABLE READ")
    with snapshot.connect() as connection:
        connection.execute(text("SET LOCAL statement_timeout = '6h'"))
        connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = '6h'"))
        connection.execute(text("SET TRANSACTION READ ONLY"))
        streaming = connection.execution_options(stream_results=True)
        for query in (_FAULTS, ORDER_FAULTS):
            for rows in streaming.execute(text(query)).partitions(_MAX_BATCH_ROWS):
                for user_id, seq, fault, order_id in rows:
                    yield LedgerFault(user_id, seq, fault, order_id)


_FAULTS = """
WITH chained AS (
    SELECT e AS entry, e.user_id, e.seq, e.delta, e.balance_after, e.hash, e.action, e.order_id,
        lag(e.seq, 1, 0::bigint) OVER w AS seq_before,
        lag(e.balance_after, 1, 0::numeric) OVER w AS balance_before,
        lag(e.hash, 1, sha256('')) OVER w AS hash_before
    FROM credit_entries AS e
    WINDOW w AS (PARTITION BY e.user_id ORDER BY e.seq)
)
SELECT c.user_id, c.seq, f.fault, c.order_id
FROM chained AS c CROSS JOIN LATERAL (VALUES
    (c.seq <> c.seq_before + 1, 'an entry is missing before this one'),
    (c.balance_after <> c.balance_before + c.delta, 'balance_after does not follow from delta'),
    (c.balance_after < 0, 'the balance is negative'),
    (c.hash <> credit_entry_hash(c.hash_before, c.entry), 'the hash does not fit what it says'),
    (CASE
        WHEN c.action IN ('topup', 'grant', 'consume_reversal') THEN c.delta <= 0
        WHEN c.action IN ('consume', 'debt_payment') THEN c.delta >= 0
        WHEN c.action = 'topup_refund' THEN c.delta > 0
        ELSE c.delta = 0
    END, 'the delta does not fit the action')
) AS f (is_wrong, fault)
WHERE f.is_wrong
UNION ALL
SELECT coalesce(a.user_id, s.user_id), NULL, f.fault, NULL
FROM credit_accounts AS a
FULL JOIN (
    SELECT user_id, count(*) AS entries, max(seq) AS last_seq, sum(delta) AS total,
        sum(CASE
            WHEN action = 'topup_refund' AND delta = 0 THEN amount
            WHEN action = 'debt_payment' THEN -amount ELSE 0
        END) AS owed
    FROM credit_entries GROUP BY user_id
) AS s ON s.user_id = a.user_id
LEFT JOIN credit_entries AS l ON l.user_id = s.user_id AND l.seq = s.last_seq
CROSS JOIN LATERAL (VALUES
    (a.user_id IS NULL, 'there are entries and no account'),
    (a.balance < 0 OR a.debt < 0, 'the balance or the debt is negative'),
    (a.balance <> coalesce(s.total, 0), 'the balance is not the sum of the entries'),
    (a.debt <> coalesce(s.owed, 0), 'the debt does not follow from the entries'),
    (a.balance <> coalesce(l.balance_after, 0), 'the balance is not that of the last entry'),
    (a.last_seq <> coalesce(s.last_seq, 0) OR a.last_seq <> coalesce(s.entries, 0),
        'entries are missing at the end'),
    (a.last_hash <> coalesce(l.hash, sha256('')), 'the account does not end in the last hash')
) AS f (is_wrong, fault)
WHERE f.is_wrong
"""
