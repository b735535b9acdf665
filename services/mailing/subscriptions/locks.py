"""Who may decide about a person on a list at a time.

Two acts may concern a pair of list and person for which no row exists yet, so no row lock can keep
them apart: an owner who adds somebody while that person opts out. Advisory locks of the transaction
do (Postgres, "Explicit Locking"). An act on one pair takes the pair's lock, and shares the list's;
a bulk act takes the list's for itself alone, since it can't hold a lock for each of its rows.

Both share the rows of the people they are about, which whoever erases a person takes for itself
alone: nothing is written down of somebody who is not there any more.

All take them in one order, so that no two wait for each other: lists, new people, pairs, the rows
of people.
"""

from dataclasses import dataclass

from sqlalchemy import text

from models import MailingList, Subscription, SubscriptionStatus, User
from services.mailing.subscriptions import changes
from storage.unit_of_work import UnitOfWork

# List ids are positive; the hashes of pairs take the negative numbers.
_SHARE = text("SELECT pg_advisory_xact_lock_shared(:list_id)")
_HOLD_PAIR = text(
    "SELECT pg_advisory_xact_lock("
    "-1 - (hashint8extended(:list_id, :user_id) & 9223372036854775807))"
)
_HOLD_LIST = text("SELECT pg_advisory_xact_lock(:list_id)")
# Waits for who erases the person, then finds nobody.
_SHARE_PERSON = text(
    "SELECT true FROM users WHERE id = :user_id AND erased_at IS NULL FOR KEY SHARE"
)


@dataclass(frozen=True)
class LockedSubscription:
    """How a person stands with a list, while nobody else can change it."""

    mailing_list: MailingList
    person: User
    record: Subscription | None

    @property
    def is_active(self) -> bool:
        return self.record is not None and self.record.status == SubscriptionStatus.ACTIVE


def lock_list_shared(uow: UnitOfWork, list_id: int) -> None:
    """No bulk act begins on the list until the transaction ends.

    ``lock_pair`` does it too. Call it before making a person, for whom a bulk act may wait.
    """
    uow.session.execute(_SHARE, {"list_id": list_id})


def lock_pair(uow: UnitOfWork, user_id: int, *list_ids: int) -> bool:
    """Nobody else decides about this person on these lists until the transaction ends.

    False for a person who was erased, or never was: leave their records alone.
    """
    # All in one order, so that two acts can't wait for each other.
    for list_id in sorted(set(list_ids)):
        lock_list_shared(uow, list_id)
    for list_id in sorted(set(list_ids)):
        uow.session.execute(_HOLD_PAIR, {"list_id": list_id, "user_id": user_id})
    return uow.session.scalar(_SHARE_PERSON, {"user_id": user_id}) is not None


def lock_list(uow: UnitOfWork, list_id: int) -> None:
    """Nobody else decides about anybody on this list until the transaction ends.

    The rows of the people whom the caller then writes about, it shares itself (FOR KEY SHARE).
    """
    uow.session.execute(_HOLD_LIST, {"list_id": list_id})


def lock_subscription(
    uow: UnitOfWork, mailing_list: MailingList, person: User
) -> LockedSubscription | None:
    """Read it under the pair's lock, which holds until the transaction ends.

    ``None`` when the person was erased: then there is nothing to be decided about them.
    """
    if not lock_pair(uow, person.id, mailing_list.id):
        return None
    return LockedSubscription(mailing_list, person, changes.find(uow, mailing_list.id, person.id))
