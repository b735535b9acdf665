"""What Pressroom itself charges for: a call that had its effect is charged once, however often it
is sent.

It charges after work that takes seconds, so its statements need not be one round trip, as those of
``ledger.consume`` are.
"""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import orjson
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from core.counters.work_metrics import count_credits
from core.refusals.money import CHARGE_IN_PROGRESS
from models import CreditAction
from services.jobs.idempotency import LOCK_NOT_AVAILABLE, IdempotencyKey
from services.money.credits import ledger
from storage.database import Statement
from storage.resources import Resources


@dataclass(frozen=True)
class OwnCharge:
    """``key`` names the call whose charge this is: equal ones within 24 hours are one charge."""

    amount: Decimal
    source_type: str
    source_id: str
    key: IdempotencyKey


def require_balance(resources: Resources, charge: OwnCharge) -> None:
    """Raises ``credits.insufficient`` unless the balance bears the charge, or bore it before."""
    values = {**_values(charge), "amount": charge.amount}
    [(is_enough,)] = resources.database.rows(_IS_ENOUGH, **values)
    if not is_enough:
        raise ledger.insufficient(resources.database, charge.key.caller_id, charge.amount)


def charge_once(resources: Resources, charge: OwnCharge, meta: dict[str, Any]) -> None:
    """Write the entry unless it was written before.

    Raises ``credits.insufficient`` and ``idempotency.in_progress``.
    """
    values = {
        **_values(charge),
        "fingerprint": charge.key.fingerprint,
        "amount": charge.amount,
        "source_type": charge.source_type,
        "source_id": charge.source_id,
        "meta": orjson.dumps(meta).decode(),
    }
    try:
        with resources.unit_of_work() as uow:
            # The lock comes first: equal calls at the same time take turns.
            uow.session.execute(_LOCK, values)
            was_charged = uow.session.scalar(_CHARGED, values) is not None
            charged = was_charged or uow.session.scalar(_CHARGE, values) is not None
    except OperationalError as error:
        if getattr(error.orig, "pgcode", None) != LOCK_NOT_AVAILABLE:
            raise
        raise CHARGE_IN_PROGRESS() from None
    if not charged:
        raise ledger.insufficient(resources.database, charge.key.caller_id, charge.amount)
    if not was_charged:
        count_credits(CreditAction.CONSUME, charge.amount)


def _values(charge: OwnCharge) -> dict[str, object]:
    key = charge.key
    return {"user_id": key.caller_id, "route": key.route, "key": key.key}


_IS_ENOUGH = Statement(
    """
SELECT EXISTS (SELECT FROM credit_accounts WHERE user_id = :user_id AND balance >= :amount)
    OR EXISTS (SELECT FROM idempotency_records WHERE caller_id = :user_id AND route = :route
        AND key = :key AND expires_at > now())
"""
)
_LOCK = text("SELECT 1 FROM credit_accounts WHERE user_id = :user_id FOR NO KEY UPDATE")
_CHARGED = text(
    "SELECT id FROM idempotency_records WHERE caller_id = :user_id AND route = :route"
    " AND key = :key AND expires_at > now()"
)
_CHARGE = text(
    """
INSERT INTO idempotency_records (caller_id, route, key, fingerprint, answer)
SELECT :user_id, :route, :key, :fingerprint, jsonb_build_object('data', credit_entry_json(e))
FROM credit_append(:user_id, 'consume', :amount, -:amount, :source_type, :source_id,
    CAST(:meta AS jsonb), NULL, NULL, NULL) AS e
ON CONFLICT (caller_id, route, key) DO UPDATE SET fingerprint = excluded.fingerprint,
    answer = excluded.answer, job_id = NULL, created_at = now(),
    expires_at = now() + interval '24 hours'
RETURNING id
"""
)
