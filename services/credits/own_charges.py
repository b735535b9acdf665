"""Charges credit accounts for services that Pressroom provides, such as the composer.

The service calls an external provider while the user's HTTP request waits for the result. An
account is charged before the call to the provider. The charge stays open, with a row in
``open_charges``, until the call has succeeded or failed. Only the process that deletes this row may
settle or reverse the charge.

A worker that has claimed a charge settles it if the call succeeds, and otherwise reverses it. If no
worker has claimed a charge by the end of the HTTP request, the API process reverses the charge.
Maintenance reverses charges that are still open after their deadline, because the responsible
process was probably killed.
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
    run=lambda resources, _: reverse_overdue_charges(resources),
)
# The time limit for the API process to reverse a charge after the end of the HTTP request.
_REVERSAL_GRACE_PERIOD = timedelta(seconds=15)
# The time limit for a worker to settle a charge. The limit must exceed the duration of the longest
# call to a provider.
_WORKER_DEADLINE = timedelta(seconds=90)
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
    """Charge a caller for a service, and return the id of the charge's ledger entry.

    Several calls with the same idempotency key within 24 hours are charged once. Return ``None`` if
    an earlier call with the key has been charged and settled. Raises ``idempotency.in_progress``
    while an earlier call with the key has an open charge.
    """
    values = {
        "user_id": key.account_id,
        "call": key.key,
        "amount": amount,
        "source_type": key.route,
        "source_id": source_id,
        "meta": orjson.dumps(meta).decode(),
        "work": work,
        "for": timedelta(seconds=seconds) + _REVERSAL_GRACE_PERIOD,
    }
    with raise_instead(LockNotAvailable, CHARGE_IN_PROGRESS()), resources.unit_of_work() as uow:
        # Lock the credit account first, so that a user's simultaneous calls are charged one after
        # another.
        uow.session.execute(_LOCK_ACCOUNT, values)
        if uow.session.scalar(_WAS_SETTLED, values):
            return None
        entry_id: int | None = uow.session.scalar(_CHARGE, values)
        is_open = entry_id is None and uow.session.scalar(_IS_OPEN, values)
    if is_open:
        raise CHARGE_IN_PROGRESS()
    if entry_id is None:
        raise ledger.insufficient_credits(resources.database, key.account_id, amount)
    count_credits(CreditAction.CONSUME, amount)
    return entry_id


def take_charge(database: Database, work: str, worker: str) -> int | None:
    """Claim an open charge for ``work`` on behalf of ``worker``, and return its ledger entry id.

    Charges that another worker has claimed come last, because that worker may still be running.
    """
    rows = database.rows(_TAKE, work=work, worker=worker, taken_for=_WORKER_DEADLINE)
    return rows[0][0] if rows else None


def settle_charge(database: Database, entry_id: int, worker: str) -> None:
    database.rows(_SETTLE, entry_id=entry_id, worker=worker)


def reverse_charge(database: Database, entry_id: int, worker: str | None = None) -> None:
    """Reverse an open charge that ``worker`` has claimed.

    If ``worker`` is ``None``, reverse the charge only if no worker has claimed it.
    """
    [(amount,)] = database.rows(_REVERSE, entry_id=entry_id, worker=worker)
    if amount is not None:
        count_credits(CreditAction.CONSUME_REVERSAL, amount)


def reverse_overdue_charges(resources: Resources) -> int:
    rows = resources.database.rows(_OVERDUE, limit=_MAX_BATCH_ROWS)
    for entry_id, worker in rows:
        reverse_charge(resources.database, entry_id, worker)
    return len(rows)


_LOCK_ACCOUNT = text("SELECT 1 FROM credit_accounts WHERE user_id = :user_id FOR NO KEY UPDATE")
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
_IS_OPEN = text(
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
