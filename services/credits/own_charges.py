"""Charges of Pressroom itself, for request-only work that a provider does.

The charge is an ordinary entry, written before the provider is asked, and open until it is known
whether the provider answered. Until then it has a row in ``open_charges``. The process that deletes
the row decides, so exactly one of these happens:

- the worker that took the charge settles it, or reverses it where nobody is to pay;
- the caller reverses it, at the end of their call, where no worker has taken it;
- maintenance reverses it after its deadline: the caller's process or the worker was killed, perhaps
  between the provider's answer and ``settle``.
"""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import orjson
from psycopg2.errors import LockNotAvailable
from sqlalchemy import bindparam, func, select, text

from core.counters.work_metrics import count_credits
from core.errors.money import CHARGE_IN_PROGRESS
from core.queues import Queue
from models import CreditAction, OpenCharge
from services.credits import ledger
from services.jobs.idempotency import IdempotencyKey
from services.jobs.maintenance import register_maintenance
from storage.database import Database, Statement
from storage.expected_errors import raise_instead
from storage.resources import Resources

REVERSE_OPEN = register_maintenance(
    "credits.reverse",
    every=timedelta(seconds=30),
    queue=Queue.MONEY,
    run=lambda resources, _: reverse_overdue(resources),
)
# After the end of the caller's wait, for a reversal by the caller's own process.
_GRACE = timedelta(seconds=15)
# Longer than any run of request-only work.
_TAKEN_FOR = timedelta(seconds=90)
_MAX_BATCH_ROWS = 1_000


def charge_call(
    resources: Resources,
    key: IdempotencyKey,
    amount: Decimal,
    *,
    source_id: str,
    meta: dict[str, Any],
    work: str,
    seconds: float,
) -> int | None:
    """Charge for work that its caller waits for, and return the entry's id.

    ``key`` names the call, and by its route the source: equal ones in 24 hours are one charge.
    Returns ``None`` where an equal call was charged, and that was settled. Raises
    ``credits.insufficient``, and ``idempotency.in_progress`` where the credits for it are held by
    an equal call.
    """
    values = {
        "user_id": key.caller_id,
        "call": key.key,
        "amount": amount,
        "source_type": key.route,
        "source_id": source_id,
        "meta": orjson.dumps(meta).decode(),
        "work": work,
        "for": timedelta(seconds=seconds) + _GRACE,
    }
    with raise_instead(LockNotAvailable, CHARGE_IN_PROGRESS()), resources.unit_of_work() as uow:
        # The lock comes first: calls at the same time take turns.
        uow.session.execute(_LOCK, values)
        if uow.session.scalar(_WAS_SETTLED, values):
            return None
        entry_id: int | None = uow.session.scalar(_CHARGE, values)
        is_held = entry_id is None and uow.session.scalar(_IS_HELD, values)
    if is_held:
        raise CHARGE_IN_PROGRESS()
    if entry_id is None:
        raise ledger.insufficient_credits(resources.database, key.caller_id, amount)
    count_credits(CreditAction.CONSUME, amount)
    return entry_id


def take_charge(database: Database, work: str, worker: str) -> int | None:
    """Take a charge of those who wait for this work; one of a lost worker comes last."""
    rows = database.rows(_TAKE, work=work, worker=worker, taken_for=_TAKEN_FOR)
    return rows[0][0] if rows else None


def settle_charge(database: Database, entry_id: int, worker: str) -> None:
    """Keep a charge that this worker took: the provider has answered."""
    database.rows(_SETTLE, entry_id=entry_id, worker=worker)


def reverse_charge(database: Database, entry_id: int, worker: str | None = None) -> None:
    """Take a charge back, unless it is in other hands than this worker's, or the caller's own."""
    [(amount,)] = database.rows(_REVERSE, entry_id=entry_id, worker=worker)
    if amount is not None:
        count_credits(CreditAction.CONSUME_REVERSAL, amount)


def reverse_overdue(resources: Resources) -> int:
    """Reverse the charges past their deadline and return their number."""
    rows = resources.database.rows(_OVERDUE, limit=_MAX_BATCH_ROWS)
    for entry_id, worker in rows:
        reverse_charge(resources.database, entry_id, worker)
    return len(rows)


_LOCK = text("SELECT 1 FROM credit_accounts WHERE user_id = :user_id FOR NO KEY UPDATE")
_WAS_SETTLED = text(
    "SELECT id FROM idempotency_records WHERE caller_id = :user_id AND route = :source_type"
    " AND key = :call AND expires_at > now()"
)
_CHARGE = text("""
INSERT INTO open_charges (entry_id, call, work, deadline)
SELECT e.id, :call, :work, now() + :for
FROM credit_append(:user_id, 'consume', :amount, -:amount, :source_type, :source_id,
    CAST(:meta AS jsonb), NULL, NULL, NULL) AS e
RETURNING entry_id
""")
_IS_HELD = text(
    "SELECT 1 FROM open_charges AS o JOIN credit_entries AS e ON e.id = o.entry_id"
    " WHERE o.work = :work AND o.call = :call AND e.user_id = :user_id LIMIT 1"
)
_TAKE = Statement("""
UPDATE open_charges SET taken_by = :worker, deadline = now() + :taken_for
WHERE entry_id = (
    SELECT entry_id FROM open_charges WHERE work = :work AND deadline > now()
    ORDER BY taken_by IS NOT NULL, entry_id LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING entry_id
""")
_SETTLE = Statement("""
WITH settled AS (
    DELETE FROM open_charges WHERE entry_id = :entry_id AND taken_by = :worker
    RETURNING entry_id, call)
INSERT INTO idempotency_records (caller_id, route, key, fingerprint, answer)
SELECT e.user_id, e.source_type, s.call, decode(s.call, 'hex'),
    jsonb_build_object('data', credit_entry_json(e))
FROM settled AS s JOIN credit_entries AS e ON e.id = s.entry_id
ON CONFLICT (caller_id, route, key) DO UPDATE SET fingerprint = excluded.fingerprint,
    answer = excluded.answer, job_id = NULL, created_at = now(),
    expires_at = now() + interval '24 hours'
RETURNING id
""")
_REVERSE = Statement("SELECT credit_reverse(:entry_id, CAST(:worker AS text))")
_OVERDUE = Statement(
    select(OpenCharge.entry_id, OpenCharge.taken_by)
    .where(OpenCharge.deadline < func.now())
    .order_by(OpenCharge.deadline)
    .limit(bindparam("limit"))
)
