"""Charges credit accounts, adds credits to accounts, and corrects balances.

``consume_credits`` makes a charge for an API client, and the module ``own_charges`` makes charges
for Pressroom's own services.

Every charge calls the database function ``credit_append``, which locks the account, rejects a
negative balance, and writes the ledger entry and the new balance. ``credit_append`` also checks the
warning threshold, which saves a separate query. Each SQL statement of this module runs in a
separate transaction.
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
from core.ids import AccountId
from core.money import MAX_AMOUNT, is_storable
from models import CreditAction
from services.access.caller import Caller
from services.jobs.idempotency import IdempotencyKey
from storage.database import Database, Statement

MAX_SOURCE_ID_CHARACTERS = 255
MAX_META_BYTES = 8 * 1024
# Matches an escaped NUL character in JSON, but not "u0000" after an escaped backslash.
_ESCAPED_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


@dataclass(frozen=True)
class Charge:
    """A charge that has reduced the balance of a credit account.

    Attributes:
        entry: the ledger entry as JSON text, in which all amounts have four decimal places.
        is_replayed: whether an earlier request with the same idempotency key made the charge.
    """

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
    """Subtract an amount from the caller's balance with a single SQL statement.

    Several requests with the same idempotency key charge the account only once. The SQL statement
    also checks the caller's API key, because a separate query would take longer.
    """
    check_amount(amount)
    _check_source_id(source_id)
    values = {
        "user_id": caller.account_id,
        "key_id": caller.key_id,
        "amount": amount,
        "source_id": source_id,
        "meta": _serialize_meta(meta),
        "route": key and key.route,
        "key": key and key.key,
        "fingerprint": key and key.fingerprint,
    }
    try:
        rows = database.rows(_CONSUME, **values)
    except LockNotAvailable:
        if key is None:
            raise
        # Another request, possibly with the same idempotency key, is changing the credit account
        # right now.
        raise errors.CHARGE_IN_PROGRESS() from None
    if not rows:
        raise AUTH_INVALID_API_KEY()
    [(outcome, entry)] = rows
    if outcome == "insufficient":
        raise insufficient_credits(database, caller.account_id, amount)
    if outcome == "key_reused":
        raise IDEMPOTENCY_KEY_REUSED()
    if outcome != "replayed":
        count_credits(CreditAction.CONSUME, amount)
    return Charge(entry, is_replayed=outcome == "replayed")


def grant_credits(
    database: Database, account_id: AccountId, amount: Decimal, *, source_id: str
) -> str:
    check_amount(amount)
    return _append(database, account_id, "grant", amount, source_id)


def adjust_balance(
    database: Database, account_id: AccountId, delta: Decimal, *, source_id: str
) -> str:
    check_amount(delta.copy_abs())
    return _append(database, account_id, "adjust", delta, source_id)


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


def read_account(database: Database, account_id: AccountId) -> str:
    """Return a user's credit account as JSON text, and create the account if necessary."""
    rows = database.rows(_ACCOUNT, user_id=account_id)
    if not rows:
        database.rows(_OPEN, user_id=account_id)
        rows = database.rows(_ACCOUNT, user_id=account_id)
    [(account,)] = rows
    return str(account)


def check_amount(amount: Decimal) -> None:
    if not is_storable(amount) or amount <= 0:
        raise errors.CREDITS_AMOUNT(most=MAX_AMOUNT)


def _check_source_id(source_id: str) -> None:
    if not 1 <= len(source_id) <= MAX_SOURCE_ID_CHARACTERS or not source_id.strip():
        raise errors.CREDITS_SOURCE_ID(most=MAX_SOURCE_ID_CHARACTERS)


def _serialize_meta(meta: dict[str, Any] | None) -> str | None:
    if meta is None:
        return None
    if _min_json_bytes(meta, stop_above=MAX_META_BYTES) > MAX_META_BYTES:
        raise errors.CREDITS_META()
    try:
        meta_json = orjson.dumps(meta, default=_serialize_number)
    except orjson.JSONEncodeError:
        raise errors.CREDITS_META_UNWRITABLE() from None
    if len(meta_json) > MAX_META_BYTES or _ESCAPED_NUL.search(meta_json):
        raise errors.CREDITS_META()
    return meta_json.decode()


def _min_json_bytes(value: object, *, stop_above: int) -> int:
    """Return a lower bound for the size of a value as JSON, counted up to ``stop_above``.

    The function measures the value without serialising it, because numbers such as 1e300, which has
    301 digits, could fill the memory.
    """
    count = 0
    pending = [value]
    while pending and count <= stop_above:
        item = pending.pop()
        if isinstance(item, str):
            count += len(item)
        elif isinstance(item, dict | list):
            # Each element of a JSON array or object takes at least one character plus a comma or a
            # bracket.
            count += 2 * len(item)
            if isinstance(item, dict):
                count += sum(map(len, item))
            pending += item.values() if isinstance(item, dict) else item
    return count


def _serialize_number(value: object) -> orjson.Fragment:
    """Serialise a number as a double, because most JSON parsers read numbers as doubles.

    As in the database, numbers have no exponent, so 1e300 is written with 301 digits.
    """
    number = float(value) if isinstance(value, int | Decimal) else math.inf
    if not math.isfinite(number):
        raise TypeError
    return orjson.Fragment(format(Decimal(repr(number)), "f"))


_APPEND = Statement(
    "SELECT credit_entry_json(e)::text FROM credit_append(:user_id, :action, :amount, :delta, "
    "'operator', :source_id, NULL, NULL, NULL, NULL) AS e"
)


def _append(
    database: Database, account_id: AccountId, action: str, delta: Decimal, source_id: str
) -> str:
    _check_source_id(source_id)
    values = {"user_id": account_id, "action": action, "amount": abs(delta), "delta": delta}
    try:
        rows = database.rows(_APPEND, source_id=source_id, **values)
    except DataError:
        raise errors.CREDITS_BALANCE_TOO_LARGE() from None
    if not rows:
        raise insufficient_credits(database, account_id, abs(delta))
    count_credits(action, abs(delta))
    [(entry,)] = rows
    return str(entry)


_BALANCE = Statement("SELECT balance FROM credit_accounts WHERE user_id = :user_id")


def insufficient_credits(database: Database, account_id: AccountId, needed: Decimal) -> DomainError:
    rows = database.rows(_BALANCE, user_id=account_id)
    balance = rows[0][0] if rows else 0
    # A float represents every amount of credits exactly, because amounts have at most fifteen
    # digits.
    facts = {"balance_credit": float(balance), "needed": float(needed)}
    return errors.CREDITS_INSUFFICIENT(facts=facts)
