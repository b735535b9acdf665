"""Charges accounts and corrects their balances.

``consume_credits`` charges an account when a program calls the API to consume credits, with the
database function ``credit_consume``. The module ``own_charges`` charges for Pressroom's own
services, such as the composer. Every charge uses the database function ``credit_append``, which
locks the account, refuses to make the balance negative, and writes the entry and the new balance.
``credit_append`` also compares the balance with the account's threshold (``thresholds``), so a
charge needs no other query. Each SQL statement of this module is a separate transaction, which is
committed when the statement returns.
"""

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import orjson
from psycopg2 import DataError
from psycopg2.errors import LockNotAvailable

from core.counters.work_metrics import count_credits
from core.errors import DomainError
from core.errors import money as errors
from core.errors.access import AUTH_INVALID_API_KEY
from core.errors.requests import IDEMPOTENCY_KEY_REUSED
from core.money import MAX_AMOUNT, is_storable
from models import CreditAction
from services.access.caller import Caller
from services.jobs.idempotency import IdempotencyKey
from storage.database import Database, Statement

MAX_SOURCE_ID_CHARACTERS = 255
MAX_META_BYTES = 8 * 1024


# The escape of a NUL, but not an escaped backslash before the text "u0000".
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


@dataclass(frozen=True)
class Charge:
    """A charge that was made. ``entry`` is JSON text, whose numbers keep their four decimals."""

    entry: str
    is_replayed: bool


_CONSUME = Statement(
    "SELECT outcome, answer FROM credit_consume(:user_id, :key_id, :amount, :source_id, "
    "CAST(:meta AS jsonb), :route, :key, CAST(:fingerprint AS bytea))"
)


def consume_credits(
    database: Database,
    caller: Caller,
    *,
    amount: Decimal,
    source_id: str,
    meta: dict[str, Any] | None,
    key: IdempotencyKey | None,
) -> Charge:
    """Charge an account in one round trip. Requests with the same key charge it once.

    The statement checks the caller's API key too. Raises ``auth.invalid_credentials``,
    ``credits.amount``, ``credits.source_id``, ``credits.meta``, ``credits.insufficient``,
    ``idempotency.key_reused`` and ``idempotency.in_progress``.
    """
    check_amount(amount)
    _check_source(source_id)
    values = {
        "user_id": caller.user_id,
        "key_id": caller.key_id,
        "amount": amount,
        "source_id": source_id,
        "meta": _meta(meta),
        "route": key and key.route,
        "key": key and key.key,
        "fingerprint": key and key.fingerprint,
    }
    try:
        rows = database.rows(_CONSUME, **values)
    except LockNotAvailable:
        if key is None:
            raise
        # Another request holds the lock of the account. It may be the same request, sent twice.
        raise errors.CHARGE_IN_PROGRESS() from None
    if not rows:
        raise AUTH_INVALID_API_KEY()
    [(outcome, entry)] = rows
    if outcome == "insufficient":
        raise insufficient_credits(database, caller.user_id, amount)
    if outcome == "key_reused":
        raise IDEMPOTENCY_KEY_REUSED()
    if outcome != "replayed":
        count_credits(CreditAction.CONSUME, amount)
    return Charge(entry, is_replayed=outcome == "replayed")


def grant_credits(database: Database, user_id: int, amount: Decimal, *, source_id: str) -> str:
    """Give credits and return the entry as JSON text. Raises ``credits.amount``."""
    check_amount(amount)
    return _append(database, user_id, "grant", amount, source_id)


def adjust_balance(database: Database, user_id: int, delta: Decimal, *, source_id: str) -> str:
    """Correct a balance up or down. Raises ``credits.amount``, ``credits.insufficient``."""
    check_amount(delta.copy_abs())
    return _append(database, user_id, "adjust", delta, source_id)


_OPEN = Statement(
    "INSERT INTO credit_accounts (user_id, last_hash) VALUES (:user_id, sha256('')) "
    "ON CONFLICT (user_id) DO NOTHING"
)
_ACCOUNT = Statement("""
SELECT jsonb_build_object(
    'id', id, 'user_id', user_id, 'balance_credit', balance, 'debt_credit', debt, 'status', status,
    'created_at', to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
    'updated_at', to_char(updated_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))::text
FROM credit_accounts WHERE user_id = :user_id
""")


def read_account(database: Database, user_id: int) -> str:
    """Return the user's account as JSON text. The first call creates an empty account."""
    rows = database.rows(_ACCOUNT, user_id=user_id)
    if not rows:
        database.rows(_OPEN, user_id=user_id)
        rows = database.rows(_ACCOUNT, user_id=user_id)
    [(account,)] = rows
    return str(account)


def check_amount(amount: Decimal) -> None:
    if not is_storable(amount) or amount <= 0:
        raise errors.CREDITS_AMOUNT(most=MAX_AMOUNT)


def _check_source(source_id: str) -> None:
    if not 1 <= len(source_id) <= MAX_SOURCE_ID_CHARACTERS or not source_id.strip():
        raise errors.CREDITS_SOURCE_ID(most=MAX_SOURCE_ID_CHARACTERS)


def _meta(meta: dict[str, Any] | None) -> str | None:
    if meta is None:
        return None
    if _min_bytes(meta, enough=MAX_META_BYTES) > MAX_META_BYTES:
        raise errors.CREDITS_META()
    try:
        written = orjson.dumps(meta, default=_as_double)
    except orjson.JSONEncodeError:
        raise errors.CREDITS_META_UNWRITABLE() from None
    if len(written) > MAX_META_BYTES or _NUL.search(written):
        raise errors.CREDITS_META()
    return written.decode()


def _min_bytes(value: object, *, enough: int) -> int:
    """Return a lower bound of the value's size as JSON, to reject large values early.

    Counting stops once the bound exceeds ``enough``. Serialising the value could take a hundred
    times the memory of the request, because a number such as 1e300 becomes 301 digits.
    """
    count = 0
    waiting = [value]
    while waiting and count <= enough:
        each = waiting.pop()
        if isinstance(each, str):
            count += len(each)
        elif isinstance(each, dict | list):
            # Each item has at least one character, and a comma or a bracket next to it.
            count += 2 * len(each)
            if isinstance(each, dict):
                count += sum(map(len, each))
            waiting += each.values() if isinstance(each, dict) else each
    return count


def _as_double(value: object) -> orjson.Fragment:
    """Write a number of free-form JSON as a double, which is how most JSON readers read it.

    It is written without an exponent, as in the database: 1e300 counts as 301 digits.
    """
    number = float(value) if isinstance(value, int | Decimal) else math.inf
    if not math.isfinite(number):
        raise TypeError
    return orjson.Fragment(format(Decimal(repr(number)), "f"))


_APPEND = Statement(
    "SELECT credit_entry_json(e)::text FROM credit_append(:user_id, :action, :amount, :delta, "
    "'operator', :source_id, NULL, NULL, NULL, NULL) AS e"
)


def _append(database: Database, user_id: int, action: str, delta: Decimal, source_id: str) -> str:
    _check_source(source_id)
    values = {"user_id": user_id, "action": action, "amount": abs(delta), "delta": delta}
    try:
        written = database.rows(_APPEND, source_id=source_id, **values)
    except DataError:
        raise errors.CREDITS_BALANCE_TOO_LARGE() from None
    if not written:
        raise insufficient_credits(database, user_id, abs(delta))
    count_credits(action, abs(delta))
    [(entry,)] = written
    return str(entry)


_BALANCE = Statement("SELECT balance FROM credit_accounts WHERE user_id = :user_id")


def insufficient_credits(database: Database, user_id: int, needed: Decimal) -> DomainError:
    """Return the error with the present balance, which is 0 without an account."""
    rows = database.rows(_BALANCE, user_id=user_id)
    balance = rows[0][0] if rows else 0
    # A double holds every such amount: they have at most fifteen digits.
    facts = {"balance_credit": float(balance), "needed": float(needed)}
    return errors.CREDITS_INSUFFICIENT(facts=facts)
