"""Reads and sets a user's warning threshold. A lower balance of credits counts as low."""

from decimal import Decimal

from core.errors.money import CREDITS_BELOW
from core.ids import AccountId
from core.money import MAX_AMOUNT, is_storable
from storage.database import Database, Statement

_THRESHOLD = Statement(
    "SELECT coalesce((SELECT low_below FROM credit_accounts WHERE user_id = :user_id), 100.0000)"
)


def read_threshold(database: Database, account_id: AccountId) -> str:
    [(below,)] = database.rows(_THRESHOLD, user_id=account_id)
    return str(below)


_SET_THRESHOLD = Statement(
    "INSERT INTO credit_accounts AS a (user_id, last_hash, low_below)"
    " VALUES (:user_id, sha256(''), :below) ON CONFLICT (user_id) DO UPDATE"
    " SET low_below = excluded.low_below, low_told = false"
    " WHERE a.low_below <> excluded.low_below RETURNING 1"
)


def set_threshold(database: Database, account_id: AccountId, below: Decimal) -> int:
    """Return 1 if the threshold changed, else 0. A threshold of 0 disables the warning."""
    if not is_storable(below) or below < 0:
        raise CREDITS_BELOW(most=MAX_AMOUNT)
    return len(database.rows(_SET_THRESHOLD, user_id=account_id, below=below))
