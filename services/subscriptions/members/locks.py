"""Locks that serialize changes of the same person's subscription to the same list.

Two transactions may change a subscription that has no row yet. For example, an owner adds a person
while the person opts out. Postgres can't lock a missing row, so the transactions use advisory locks
(see "Explicit Locking" in the Postgres manual). A change of one subscription takes an exclusive
lock on the pair of list and person, and a shared lock on the list. A bulk action takes an exclusive
lock on the list, because one lock per changed row would be too many.

Chunks of one import concern different people, so Pressroom may apply several chunks at the same
time. Each chunk takes a shared lock on the list, which excludes other bulk actions. Two more locks
per list, called gate and room, keep a chunk and a change of one subscription apart:

- A chunk takes the gate exclusively for a moment, and keeps a shared lock on the room.
- A change of one subscription keeps a shared lock on the gate, so no further chunk can start. The
  change then waits until no chunk holds the room.

P. J. Courtois and others describe two kinds of processes that exclude each other, but not
themselves, in "Concurrent control with readers and writers" (1971).

Every change also takes a shared lock on the person's row. An erasure takes an exclusive lock on the
person's row before the erasure marks the person as erased. No transaction can therefore write data
about an erased person. The erasure's job later blanks the person's records under shared locks on
the lists.

To avoid deadlocks, all transactions take their locks in the same order. The order is the list's
lock, the list's gate, the list's room, new people, pairs of list and person, rows of people.

A bulk action may lock a list for seconds. A person should rather retry than wait so long, so a
change of one subscription waits for at most two seconds. The running chunks of an import finish in
less time.
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

# The keys of the gate and the room. List ids are positive and below 2**53, and the keys of pairs
# are negative, so all keys differ.
_GATE = "(:list_id + 9007199254740992)"
_ROOM = "(:list_id + 18014398509481984)"
# The lock on the room only waits for running chunks. The rollback to the savepoint releases the
# lock on the room.
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
# A chunk releases the gate before the transaction ends, so the lock on the gate belongs to the
# session. Only the holder of the gate takes the room exclusively. The shared lock on the room
# therefore never waits.
_ENTER_ROOM = text(
    f"SELECT pg_advisory_lock({_GATE}), pg_advisory_xact_lock_shared({_ROOM}),"
    f" pg_advisory_unlock({_GATE})"
)
# Release the gate only if the session holds the gate, because Postgres would otherwise log a
# warning. The view ``pg_locks`` splits the key of a lock into two columns.
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
# This query waits for a transaction that erases the person, and then returns no row.
_LOCK_PERSON_SHARED = text(
    "SELECT true FROM users WHERE id = :user_id AND erased_at IS NULL FOR KEY SHARE"
)


@dataclass(frozen=True)
class LockedSubscription:
    """A person's subscription to a list, locked until the transaction ends.

    Attributes:
        record: ``None`` if the list has never had a record of the person.
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
    """Return the address of the person's account, and the address in the record."""
    addresses = {person.email}
    if record is not None and record.email is not None:
        addresses.add(record.email)
    return addresses


@contextmanager
def limit_lock_waits(uow: UnitOfWork) -> Iterator[None]:
    """Limit the wait for each lock to two seconds until the transaction ends.

    Raises ``list.busy`` if a lock in the block takes longer. Postgres can then only roll back the
    transaction.
    """
    # Flush pending writes inside the block, because these writes may wait for locks too.
    with uow.session.no_autoflush:
        uow.session.execute(_LIMIT_LOCK_WAITS)
    with raise_instead(psycopg2.errors.LockNotAvailable, LIST_BUSY()):
        yield


def lock_list_shared(uow: UnitOfWork, list_id: int) -> None:
    """Lock the list against bulk actions until the transaction ends. Raises ``list.busy``.

    Call this function before the transaction creates a person. Otherwise a bulk action could wait
    for the new person's address while the transaction waits for the bulk action. ``lock_pair``
    locks the list in the same way.
    """
    with limit_lock_waits(uow):
        uow.session.execute(_LOCK_LIST_SHARED, {"list_id": list_id})


def lock_lists_shared(uow: UnitOfWork, *list_ids: int) -> None:
    """Lock several lists for a job against bulk actions until the transaction ends.

    Raises ``TransientError`` if a lock takes longer than the lock timeout of the database session.
    """
    with _translate_lock_timeout():
        for list_id in sorted(list_ids):
            uow.session.execute(_LOCK_LIST_SHARED, {"list_id": list_id})


def _translate_lock_timeout() -> AbstractContextManager[None]:
    """Translate a lock timeout into ``TransientError``, so that the worker retries the job."""
    return raise_instead(psycopg2.errors.LockNotAvailable, TransientError("A list is busy."))


def lock_pair(uow: UnitOfWork, user_id: int, *list_ids: int, wait_for_lists: bool = True) -> bool:
    """Lock the person's subscriptions to these lists until the transaction ends.

    Return whether the person exists and isn't erased. The caller must not change the records of an
    erased person. Raises ``list.busy``.

    ``wait_for_lists``: whether to wait for bulk actions. Without waiting, a running bulk action
    raises ``list.busy`` immediately.
    """
    lock_list_statement = _LOCK_LIST_SHARED if wait_for_lists else _TRY_LOCK_LIST_SHARED
    with limit_lock_waits(uow):
        # Sort the ids, so that two transactions can't deadlock.
        for list_id in sorted(set(list_ids)):
            if uow.session.scalar(lock_list_statement, {"list_id": list_id}) is False:
                raise LIST_BUSY()
        for list_id in sorted(set(list_ids)):
            uow.session.execute(_LOCK_PAIR, {"list_id": list_id, "user_id": user_id})
        return lock_person_shared(uow, user_id)


def lock_person_shared(uow: UnitOfWork, user_id: int) -> bool:
    """Lock the person's row against an erasure.

    Return whether the person exists and isn't erased.
    """
    return uow.session.scalar(_LOCK_PERSON_SHARED, {"user_id": user_id}) is not None


def lock_subscription(
    uow: UnitOfWork, mailing_list: MailingList, person: User
) -> LockedSubscription | None:
    """Lock and return the person's subscription, or return ``None`` for an erased person.

    The record of the subscription shows all opt-outs of the person. Raises ``list.busy``.
    """
    if not lock_pair(uow, person.id, mailing_list.id):
        return None
    record = changes.find_record(uow, mailing_list.id, person.id)
    if record is not None:
        opt_outs.apply_opt_outs(uow, record)
    return LockedSubscription(mailing_list, person, record)


def lock_list(uow: UnitOfWork, list_id: int) -> None:
    """Lock the list exclusively until the transaction ends.

    The caller must also take shared locks (FOR KEY SHARE) on the rows of the changed people. Raises
    ``TransientError`` if the lock takes too long.
    """
    with _translate_lock_timeout():
        uow.session.execute(_LOCK_LIST, {"list_id": list_id})


def lock_list_for_chunk(uow: UnitOfWork, list_id: int) -> None:
    """Lock the list for a chunk of an import until the transaction ends.

    The lock excludes all changes except other chunks of the same import. Chunks that run at the
    same time must concern different people. The caller must also take shared locks (FOR KEY SHARE)
    on the rows of the changed people. Raises ``TransientError`` if the lock takes too long.
    """
    with _translate_lock_timeout():
        uow.session.execute(_LOCK_LIST_FOR_CHUNK, {"list_id": list_id})
        try:
            with uow.session.begin_nested():
                uow.session.execute(_ENTER_ROOM, {"list_id": list_id})
        except OperationalError as error:
            # Postgres may grant the lock on the gate at the same moment as the timeout. A rollback
            # doesn't release a lock of the session. Without this statement, all other transactions
            # would wait for this connection.
            if not error.connection_invalidated:
                uow.session.execute(_RELEASE_GATE, {"list_id": list_id})
            raise
