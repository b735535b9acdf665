"""Locks that keep apart two acts on the same person and list.

Two acts may concern a pair of list and person that has no row yet: an owner adds a person while
that person opts out. No row lock can keep these apart, so they take advisory locks of the
transaction (Postgres, "Explicit Locking"). An act on one pair takes the pair's lock exclusively and
the list's lock shared. A bulk action takes the list's lock exclusively, since it can't hold a lock
for each of its rows.

Chunks of one import concern different people, so they may be applied side by side: each takes the
list's lock shared, which keeps other bulk actions out. Acts on one pair are kept out by two more
locks of the list, its gate and its room. A chunk passes the gate, whose exclusive lock it holds for
a moment, and stays in the room by a shared lock. An act holds the gate shared, so no chunk comes in
before it has ended, and waits until the room is empty. (Two kinds that exclude each other, and not
themselves: P. J. Courtois and others, "Concurrent control with readers and writers", 1971.)

Both kinds of act also take shared locks on the rows of the people concerned. An erasure marks the
person under an exclusive lock of their row, so nothing is written about a person afterwards. Its
job then blanks their records under the shared locks of the lists.

All acts take their locks in one order, so that no two wait for each other: lists (the list's lock,
its gate, its room), new people, pairs, the rows of people.

A bulk action may hold its list for seconds. A person who waits for an act on one pair is rather
asked to try again, so such an act waits for two seconds at most. An act that waits for chunks lets
no further one in, and those inside take less than that.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import psycopg2.errors
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from core.errors import TransientError
from core.errors.mailing import LIST_BUSY
from models import MailingList, Subscription, SubscriptionStatus, User
from services.subscriptions.members import changes, opt_outs
from storage.expected_errors import raise_instead
from storage.unit_of_work import UnitOfWork

# List ids are positive and below 2**53; the hashes of pairs take the negative numbers.
_GATE = "(:list_id + 9007199254740992)"
_ROOM = "(:list_id + 18014398509481984)"
# The room is looked into by a lock of the transaction, which the savepoint gives back.
_SHARE = text(
    f"SELECT pg_advisory_xact_lock_shared(:list_id), pg_advisory_xact_lock_shared({_GATE});"
    f" SAVEPOINT room; SELECT pg_advisory_xact_lock({_ROOM}); ROLLBACK TO SAVEPOINT room;"
    " RELEASE SAVEPOINT room; SELECT true"
)
_TRY_TO_SHARE = text(
    "SELECT CASE WHEN NOT pg_try_advisory_xact_lock_shared(:list_id) THEN false"
    f" WHEN NOT pg_try_advisory_xact_lock_shared({_GATE}) THEN false"
    f" WHEN NOT pg_try_advisory_lock({_ROOM}) THEN false"
    f" ELSE pg_advisory_unlock({_ROOM}) END"
)
_SHARE_AS_CHUNK = text("SELECT pg_advisory_xact_lock_shared(:list_id)")
# The gate is given back before the room is, so its lock is one of the session. Only those who hold
# the gate look whether the room is empty, so the second lock never waits.
_COME_IN = text(
    f"SELECT pg_advisory_lock({_GATE}), pg_advisory_xact_lock_shared({_ROOM}),"
    f" pg_advisory_unlock({_GATE})"
)
# Only if it is held, to spare Postgres a warning. The key of a lock stands there in two halves.
_LEAVE_GATE = text(
    f"SELECT pg_advisory_unlock({_GATE})"  # noqa: S608 - no input
    " FROM pg_locks WHERE locktype = 'advisory'"
    " AND pid = pg_backend_pid() AND mode = 'ExclusiveLock' AND granted"
    f" AND (CAST(classid AS bigint) << 32 | CAST(objid AS bigint)) = {_GATE}"
)
_HOLD_PAIR = text(
    "SELECT pg_advisory_xact_lock("
    "-1 - (hashint8extended(:list_id, :user_id) & 9223372036854775807))"
)
_HOLD_LIST = text("SELECT pg_advisory_xact_lock(:list_id)")
_WAIT_BRIEFLY = text("SET LOCAL lock_timeout = '2s'")
# Waits for a transaction that erases the person, and then returns no row.
_SHARE_PERSON = text(
    "SELECT true FROM users WHERE id = :user_id AND erased_at IS NULL FOR KEY SHARE"
)


@dataclass(frozen=True)
class LockedSubscription:
    """A person's subscription to a list, which no other transaction can change meanwhile.

    ``record`` is ``None`` for a person whom the list has never had.
    """

    mailing_list: MailingList
    person: User
    record: Subscription | None

    @property
    def is_active(self) -> bool:
        return self.record is not None and self.record.status == SubscriptionStatus.ACTIVE

    @property
    def addresses(self) -> set[str]:
        """The address of the person's account, and the address that the list stores for them."""
        return addresses_of(self.person, self.record)


def addresses_of(person: User, record: Subscription | None) -> set[str]:
    known = None if record is None else record.email
    return {person.email} if known is None else {person.email, known}


@contextmanager
def waiting_briefly(uow: UnitOfWork) -> Iterator[None]:
    """Wait for locks for two seconds at most, in the rest of the transaction too.

    Raises ``list.busy`` when the block gets none in time; the transaction can only be rolled back
    then.
    """
    # Pending writes wait for the block.
    with uow.session.no_autoflush:
        uow.session.execute(_WAIT_BRIEFLY)
    with raise_instead(psycopg2.errors.LockNotAvailable, LIST_BUSY()):
        yield


def lock_list_shared(uow: UnitOfWork, list_id: int) -> None:
    """Keep bulk actions off the list until the transaction ends; raises ``list.busy``.

    ``lock_pair`` does this too. Call this one before making a person, for whose address a bulk
    action may wait.
    """
    with waiting_briefly(uow):
        uow.session.execute(_SHARE, {"list_id": list_id})


def share_lists(uow: UnitOfWork, *list_ids: int) -> None:
    """Lock several lists for a job, so that no bulk action changes them during the transaction.

    A job waits for the locks until the timeout of the SQL statement. Raises ``TransientError`` if
    the job gets no lock in this time.
    """
    with _unless_busy():
        for list_id in sorted(list_ids):
            uow.session.execute(_SHARE, {"list_id": list_id})


def _unless_busy() -> AbstractContextManager[None]:
    """Let a job that gets no lock in time be tried again."""
    return raise_instead(psycopg2.errors.LockNotAvailable, TransientError("A list is busy."))


def lock_pair(uow: UnitOfWork, user_id: int, *list_ids: int, wait_for_lists: bool = True) -> bool:
    """Keep other acts on this person and these lists out until the transaction ends.

    False for a person who was erased, or never existed: the caller must leave their records alone.
    Raises ``list.busy``, at once if it is not to wait for bulk actions.
    """
    share = _SHARE if wait_for_lists else _TRY_TO_SHARE
    with waiting_briefly(uow):
        # All in one order, so that two acts can't wait for each other.
        for list_id in sorted(set(list_ids)):
            if uow.session.scalar(share, {"list_id": list_id}) is False:
                raise LIST_BUSY()
        for list_id in sorted(set(list_ids)):
            uow.session.execute(_HOLD_PAIR, {"list_id": list_id, "user_id": user_id})
        return share_person(uow, user_id)


def share_person(uow: UnitOfWork, user_id: int) -> bool:
    """Keep an erasure of the person out; False when they were erased, or never existed."""
    return uow.session.scalar(_SHARE_PERSON, {"user_id": user_id}) is not None


def lock_subscription(
    uow: UnitOfWork, mailing_list: MailingList, person: User
) -> LockedSubscription | None:
    """Read the subscription under the pair's lock, which holds until the transaction ends.

    ``None`` when the person was erased: the caller must then decide nothing about them. Raises
    ``list.busy``.
    """
    if not lock_pair(uow, person.id, mailing_list.id):
        return None
    record = changes.find_record(uow, mailing_list.id, person.id)
    if record is not None:
        opt_outs.settle_opt_outs(uow, record)
    return LockedSubscription(mailing_list, person, record)


def lock_list(uow: UnitOfWork, list_id: int) -> None:
    """Keep every other act on this list out until the transaction ends.

    The caller itself takes shared locks (FOR KEY SHARE) on the rows of the people it writes about.
    Raises ``TransientError`` when it gets the list's lock not in time.
    """
    with _unless_busy():
        uow.session.execute(_HOLD_LIST, {"list_id": list_id})


def lock_list_as_chunk(uow: UnitOfWork, list_id: int) -> None:
    """Keep all acts on this list out but other calls of this, until the transaction ends.

    The other calls must concern other people. As for ``lock_list``, the caller locks the rows of
    its people.
    """
    with _unless_busy():
        uow.session.execute(_SHARE_AS_CHUNK, {"list_id": list_id})
        try:
            with uow.session.begin_nested():
                uow.session.execute(_COME_IN, {"list_id": list_id})
        except OperationalError as error:
            # Postgres may grant a lock at the moment at which the wait for it ends as in vain, and
            # no rollback gives back a lock of the session: everybody would wait for this
            # connection.
            if not error.connection_invalidated:
                uow.session.execute(_LEAVE_GATE, {"list_id": list_id})
            raise
