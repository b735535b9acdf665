"""The threshold below which an account's balance counts as low."""

from decimal import Decimal

from core.errors.money import CREDITS_BELOW
from core.money import MAX_AMOUNT, is_storable
from storage.database import Database, Statement


def threshold(database: Database, user_id: int) -> str:
    """The user's threshold, as a number with four decimals, also before there is an account."""
    [(below,)] = database.rows(_READ, user_id=user_id)
    return str(below)


def set_threshold(database: Database, user_id: int, below: Decimal) -> int:
    """Set the threshold, 0 for none: 1, or 0 when it was so already. Raises ``credits.below``."""
    if not is_storable(below) or below < 0:
        raise CREDITS_BELOW(most=MAX_AMOUNT)
    return len(database.rows(_SET, user_id=user_id, below=below))


_READ = Statement(
    "SELECT coalesce((SELECT low_below FROM credit_accounts WHERE user_id = :user_id), 100.0000)"
)
_SET = Statement(
    "INSERT INTO credit_accounts AS a (user_id, last_hash, low_below)"
    " VALUES (:user_id, sha256(''), :below) ON CONFLICT (user_id) DO UPDATE"
    " SET low_below = excluded.low_below, low_told = false"
    " WHERE a.low_below <> excluded.low_below RETURNING 1"
)
