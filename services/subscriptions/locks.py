"""Who may decide about a person on a list at a time.

Two acts may concern a pair of list and person for which no row exists yet, so no row lock can keep
them apart: an owner who adds somebody while that person opts out. Advisory locks of the transaction
do (Postgres, "Explicit Locking"). An act on one pair takes the pair's lock, and shares the list's;
a bulk act takes the list's for itself alone, since it can't hold a lock for each of its rows.
"""

from sqlalchemy import text

from storage.unit_of_work import UnitOfWork

# List ids are positive; the hashes of pairs take the negative numbers.
_SHARE = text("SELECT pg_advisory_xact_lock_shared(:list_id)")
_HOLD_PAIR = text(
    "SELECT pg_advisory_xact_lock("
    "-1 - (hashint8extended(:list_id, :user_id) & 9223372036854775807))"
)
_HOLD_LIST = text("SELECT pg_advisory_xact_lock(:list_id)")


def hold(uow: UnitOfWork, user_id: int, *list_ids: int) -> None:
    """Nobody else decides about this person on these lists until the transaction ends."""
    # All in one order, so that two acts can't wait for each other.
    for list_id in sorted(set(list_ids)):
        uow.session.execute(_SHARE, {"list_id": list_id})
    for list_id in sorted(set(list_ids)):
        uow.session.execute(_HOLD_PAIR, {"list_id": list_id, "user_id": user_id})


def hold_list(uow: UnitOfWork, list_id: int) -> None:
    """Nobody else decides about anybody on this list until the transaction ends."""
    uow.session.execute(_HOLD_LIST, {"list_id": list_id})
