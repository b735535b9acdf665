"""Locks that prevent transactions from changing the same subscription at the same time.

Two transactions may want to change a subscription that has no row in the database. For example, an
owner may add a person to a list while the person opts out of the list. Postgres can't lock a
missing row, so Pressroom uses advisory locks (see "Explicit Locking" in the Postgres manual). A
change of one subscription takes an exclusive lock on the pair of list and person, and a shared lock
on the list. A bulk action takes an exclusive lock on the list, because locking each changed
subscription would need too many locks.

Chunks of one import contain different people, so that Pressroom can apply several chunks at the
same time. Each chunk of an import takes a shared lock on the list, which excludes bulk actions. Two
advisory locks per list, called gate and room, ensure that no chunk runs during a change of one
subscription:

- A chunk of an import locks the gate exclusively for a moment, and keeps a shared lock on the room
  until the commit.
- A change of one subscription keeps a shared lock on the gate, so that no new chunk starts, and
  waits until no chunk holds the room.

The algorithm with gate and room adapts "Concurrent control with readers and writers" by Courtois
and others (1971).

Every change of a subscription takes a shared lock on the person's row. An erasure takes an
exclusive lock on the person's row before marking the person as erased. The locks on the person's
row ensure that no transaction writes data about an erased person. The job of an erasure blanks the
person's records, holding shared locks on the lists.

To avoid deadlocks, every transaction locks the list, gate, room, new people, pairs of list and
person, and rows of people in this order.

A change of one subscription waits for a lock for at most two seconds, because a bulk action may
lock a list for longer. The transactions of an import finish within two seconds.
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

# The keys of the advisory locks called gate and room, by list id. No two keys are equal, because
# list ids are positive and below 2**53, and the keys for pairs of list and person are negative.
_GATE = "(:list_id + 9007199254740992)"
_ROOM = "(:list_id + 18014398509481984)"
# Locking the room waits until the running chunks of an import end. Rolling back to the savepoint
# releases the lock on the room.
_LOCK_LIST_SHARED = text(
    f"SELECT pg_advisory_xact_lock_shared(:list_id), pg_advisory_xact_lock_shared({_GATE});"
    f" SAVEPOINT room; SELECT pg_advisory_xact_lock({_ROOM}); ROLLBACK TO SAVEPOINT room;"
    " RELEASE SAVEPOINT room; SELECT true"
)
_TRY_LOCK_LIST_SHARED = text(
    "SELECT CASE WHEN NOT pg_try_advisory_xact_lock_shared(:list_id) THEN false"
    f" WHEN NOT pg_try_advisory_xact_lock_shared({_GATE}) THEN false"
    f" WHEN NOT pg_try_advisory_lock({_ROOM}) THEN false"
    f" ELSE pg_advisory_unlock({_ROOM}) END"
)
_LOCK_LIST_FOR_CHUNK = text("SELECT pg_advisory_xact_lock_shared(:list_id)")
# A chunk of an import locks the gate for the session, because the chunk releases the gate before
# the transaction ends. The shared lock on the room is available immediately, because only a
# transaction that holds the gate locks the room exclusively.
_ENTER_ROOM = text(
    f"SELECT pg_advisory_lock({_GATE}), pg_advisory_xact_lock_shared({_ROOM}),"
    f" pg_advisory_unlock({_GATE})"
)
# Check in ``pg_locks`` whether the session holds the gate, because releasing a lock that the
# session doesn't hold logs a warning. In the view ``pg_locks``, the key of an advisory lock is
# split into two columns.
_RELEASE_GATE = text(
    f"SELECT pg_advisory_unlock({_GATE})"  # noqa: S608 - no input
    " FROM pg_locks WHERE locktype = 'advisory'"
    " AND pid = pg_backend_pid() AND mode = 'ExclusiveLock' AND granted"
    f" AND (CAST(classid AS bigint) << 32 | CAST(objid AS bigint)) = {_GATE}"
)
_LOCK_PAIR = text(
    "SELECT pg_advisory_xact_lock("
    "-1 - (hashint8extended(:list_id, :user_id) & 9223372036854775807))"
)
_LOCK_LIST = text("SELECT pg_advisory_xact_lock(:list_id)")
_LIMIT_LOCK_WAITS = text("SET LOCAL lock_timeout = '2s'")
# If another transaction is erasing the person, the query waits for the transaction and returns no
# row.
_LOCK_PERSON_SHARED = text(
    "SELECT true FROM users WHERE id = :user_id AND erased_at IS NULL FOR KEY SHARE"
)


@dataclass(frozen=True)
class LockedSubscription:
    """A person's subscription to a list, locked until the transaction ends.

    Attributes:
        record: the person's record on the list, or ``None`` if the list never had a record of the
            person.
    """

    mailing_list: MailingList
    person: User
    record: Subscription | None

    @property
    def is_active(self) -> bool:
        return self.record is not None and self.record.status == SubscriptionStatus.ACTIVE

    @property
    def addresses(self) -> set[str]:
        """Return the address of the person's account, and the address in the list's record."""
        return collect_addresses(self.person, self.record)


def collect_addresses(person: User, record: Subscription | None) -> set[str]:
    """Return the address of the person's account, and the address in the person's record."""
    addresses = {person.email}
    if record is not None and record.email is not None:
        addresses.add(record.email)
    return addresses


@contextmanager
def limit_lock_waits(uow: UnitOfWork) -> Iterator[None]:
    """Limit each wait for a lock to two seconds until the transaction ends.

    Raises ``list.busy`` if a statement inside the ``with`` block waits longer than two seconds for
    a lock. After ``list.busy``, the caller must roll back the transaction.
    """
    # Flush pending writes only inside the ``with`` block, because waiting for locks during a flush
    # must raise ``list.busy``.
    with uow.session.no_autoflush:
        uow.session.execute(_LIMIT_LOCK_WAITS)
    with raise_instead(psycopg2.errors.LockNotAvailable, LIST_BUSY()):
        yield


def lock_list_shared(uow: UnitOfWork, list_id: int) -> None:
    """Lock the list against bulk actions until the transaction ends. Raises ``list.busy``.

    Lock the list before creating a person, to avoid a deadlock with a bulk action that waits for
    the new person's address. Callers of ``lock_pair`` don't have to lock the list, because
    ``lock_pair`` locks the list.
    """
    with limit_lock_waits(uow):
        uow.session.execute(_LOCK_LIST_SHARED, {"list_id": list_id})


def lock_lists_shared(uow: UnitOfWork, *list_ids: int) -> None:
    """Lock several lists against bulk actions until the transaction ends.

    Raises ``TransientError`` if waiting for a lock exceeds the ``lock_timeout`` of the database
    session.
    """
    with _translate_lock_timeout():
        for list_id in sorted(list_ids):
            uow.session.execute(_LOCK_LIST_SHARED, {"list_id": list_id})


def _translate_lock_timeout() -> AbstractContextManager[None]:
    """Translate a lock timeout into ``TransientError``, so that the worker retries the job."""
    return raise_instead(psycopg2.errors.LockNotAvailable, TransientError("A list is busy."))


def lock_pair(uow: UnitOfWork, user_id: int, *list_ids: int, wait_for_lists: bool = True) -> bool:
    """Lock the person's subscriptions to these lists until the transaction ends.

    Return whether the person exists and isn't erased. The caller must not change the records of a
    person who doesn't exist or is erased. Raises ``list.busy``.

    ``wait_for_lists``: whether to wait for a running bulk action, or to raise ``list.busy``
    immediately.
    """
    lock_list_statement = _LOCK_LIST_SHARED if wait_for_lists else _TRY_LOCK_LIST_SHARED
    with limit_lock_waits(uow):
        # Lock the lists in the order of their ids, so that two transactions can't deadlock.
        for list_id in sorted(set(list_ids)):
            if uow.session.scalar(lock_list_statement, {"list_id": list_id}) is False:
                raise LIST_BUSY()
        for list_id in sorted(set(list_ids)):
            uow.session.execute(_LOCK_PAIR, {"list_id": list_id, "user_id": user_id})
        return lock_person_shared(uow, user_id)


def lock_person_shared(uow: UnitOfWork, user_id: int) -> bool:
    """Lock the person's row, so that the person can't be erased until the transaction ends.

    Return whether the person exists and isn't erased.
    """
    return uow.session.scalar(_LOCK_PERSON_SHARED, {"user_id": user_id}) is not None


def lock_subscription(
    uow: UnitOfWork, mailing_list: MailingList, person: User
) -> LockedSubscription | None:
    """Lock and return the person's subscription, or return ``None`` for an erased person.

    Before returning the subscription, the function applies the person's opt-outs to the record.
    Raises ``list.busy``.
    """
    if not lock_pair(uow, person.id, mailing_list.id):
        return None
    record = changes.find_record(uow, mailing_list.id, person.id)
    if record is not None:
        opt_outs.apply_opt_outs(uow, record)
    return LockedSubscription(mailing_list, person, record)


def lock_list(uow: UnitOfWork, list_id: int) -> None:
    """Lock the list against all other changes of its subscriptions until the transaction ends.

    The caller must take shared locks (FOR KEY SHARE) on the rows of the people whose subscriptions
    change. Raises ``TransientError`` if waiting for the lock takes too long.
    """
    with _translate_lock_timeout():
        uow.session.execute(_LOCK_LIST, {"list_id": list_id})


def lock_list_for_chunk(uow: UnitOfWork, list_id: int) -> None:
    """Lock the list for a chunk of an import until the transaction ends.

    Until the transaction ends, only chunks of the same import can change subscriptions to the list.
    Chunks that run at the same time must contain different people. The caller must take shared
    locks (FOR KEY SHARE) on the rows of the people whose subscriptions change. Raises
    ``TransientError`` if waiting for the lock takes too long.
    """
    with _translate_lock_timeout():
        uow.session.execute(_LOCK_LIST_FOR_CHUNK, {"list_id": list_id})
        try:
            with uow.session.begin_nested():
                uow.session.execute(_ENTER_ROOM, {"list_id": list_id})
        except OperationalError as error:
            # Release the gate, because Postgres may have granted the gate at the moment of the
            # timeout. A rollback doesn't release a lock that belongs to the session, so all other
            # transactions would wait for the gate.
            if not error.connection_invalidated:
                uow.session.execute(_RELEASE_GATE, {"list_id": list_id})
            raise
