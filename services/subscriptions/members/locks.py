"""Locks subscriptions, so that two transactions can't change the same subscription at once.

Because Postgres can't lock a missing row, Pressroom uses advisory locks (see "Explicit Locking" in
the Postgres manual). For example, an owner may add a person to a list while the person opts out of
the list, although no subscription exists. To change a single subscription, a transaction takes an
exclusive lock on the pair of list and person, and a shared lock on the list. A bulk action takes an
exclusive lock on the list, because too many locks would be needed to lock each changed
subscription.

Pressroom can apply several chunks of one import at the same time, because no person is in two
chunks. Each chunk of an import takes a shared lock on the list, so that no bulk action runs at the
same time. Two advisory locks per list, called gate and room, ensure that no chunk runs while a
single subscription is changed.

- A chunk of an import locks the gate exclusively for a moment, and keeps a shared lock on the room
  until the transaction commits.
- A transaction that changes a single subscription keeps a shared lock on the gate, which stops new
  chunks, and waits until no chunk has locked the room.

The gate and the room are based on "Concurrent control with readers and writers" by Courtois and
others (1971).

To ensure that no transaction writes data about an erased person, every change of a subscription
takes a shared lock on the person's row in ``users``. An erasure takes an exclusive lock on the
person's row before it marks the person as erased. The job that blanks an erased person's records
takes shared locks on the lists.

To avoid deadlocks, every transaction first locks the list, then the gate, the room, new people,
pairs of list and person, and finally rows of people.

A transaction that changes a single subscription waits at most two seconds for a lock. Transactions
of an import end within two seconds, but a bulk action may lock a list for longer.
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

# SQL expressions for the keys of the advisory locks called gate and room. No two advisory locks
# have the same key, because list ids are positive and below 2**53, and keys for pairs of list and
# person are negative.
_GATE = "(:list_id + 9007199254740992)"
_ROOM = "(:list_id + 18014398509481984)"
# The statement takes a lock on the room only to wait until all running chunks of an import end.
# Rolling back to the savepoint releases the lock on the room.
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
# A chunk of an import uses a session-level lock for the gate, because the lock must be released
# before the transaction ends. Taking the shared lock on the room never blocks, because a
# transaction needs the gate to take an exclusive lock on the room.
_ENTER_ROOM = text(
    f"SELECT pg_advisory_lock({_GATE}), pg_advisory_xact_lock_shared({_ROOM}),"
    f" pg_advisory_unlock({_GATE})"
)
# Check in ``pg_locks`` whether the session has locked the gate, because Postgres logs a warning if
# a session releases a lock that it doesn't hold. The view ``pg_locks`` splits the key of an
# advisory lock into two columns.
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
# If a concurrent transaction is erasing the person, the query waits until that transaction ends,
# and returns no row.
_LOCK_PERSON_SHARED = text(
    "SELECT true FROM users WHERE id = :user_id AND erased_at IS NULL FOR KEY SHARE"
)


@dataclass(frozen=True)
class LockedSubscription:
    """A person's subscription to a list, which is locked until the transaction ends.

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
        """Return the addresses in the person's account and in the person's record on the list."""
        return collect_addresses(self.person, self.record)


def collect_addresses(person: User, record: Subscription | None) -> set[str]:
    """Return the addresses in the person's account and in the person's record on a list."""
    addresses = {person.email}
    if record is not None and record.email is not None:
        addresses.add(record.email)
    return addresses


@contextmanager
def limit_lock_waits(uow: UnitOfWork) -> Iterator[None]:
    """Limit each wait for a lock to two seconds until the transaction ends.

    Raises ``list.busy`` if a statement inside the ``with`` block waits for a lock for more than two
    seconds. After ``list.busy``, the caller must roll back the transaction.
    """
    # Flush pending writes only inside the ``with`` block, so that a flush that waits too long for a
    # lock raises ``list.busy``.
    with uow.session.no_autoflush:
        uow.session.execute(_LIMIT_LOCK_WAITS)
    with raise_instead(psycopg2.errors.LockNotAvailable, LIST_BUSY()):
        yield


def lock_list_shared(uow: UnitOfWork, list_id: int) -> None:
    """Prevent bulk actions from changing the list's members until the transaction ends.

    Raises ``list.busy``. A caller that creates a person must lock the list first, to avoid a
    deadlock with a bulk action that waits for the new person's address. ``lock_pair`` also locks
    the list, so its callers don't have to.
    """
    with limit_lock_waits(uow):
        uow.session.execute(_LOCK_LIST_SHARED, {"list_id": list_id})


def lock_lists_shared(uow: UnitOfWork, *list_ids: int) -> None:
    """Prevent bulk actions from changing members of the lists until the transaction ends.

    Raises ``TransientError`` if waiting for a lock exceeds the ``lock_timeout`` of the database
    session.
    """
    with _translate_lock_timeout():
        for list_id in sorted(list_ids):
            uow.session.execute(_LOCK_LIST_SHARED, {"list_id": list_id})


def _translate_lock_timeout() -> AbstractContextManager[None]:
    """Convert a lock timeout to ``TransientError``, so that the worker retries the job."""
    return raise_instead(
        psycopg2.errors.LockNotAvailable, TransientError("Another request is changing the list.")
    )


def lock_pair(uow: UnitOfWork, user_id: int, *list_ids: int, wait_for_lists: bool = True) -> bool:
    """Lock the person's subscriptions to these lists until the transaction ends.

    Return whether the person exists and isn't erased. The caller must not change any records if the
    person doesn't exist or is erased. Raises ``list.busy``.

    ``wait_for_lists``: whether to wait while a bulk action locks a list, or to raise ``list.busy``
    immediately.
    """
    lock_list_statement = _LOCK_LIST_SHARED if wait_for_lists else _TRY_LOCK_LIST_SHARED
    with limit_lock_waits(uow):
        # Lock the lists in ascending order of their ids, so that two transactions can't deadlock.
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

    If the subscription contradicts an opt-out of the person, the function updates the subscription.
    Raises ``list.busy``.
    """
    if not lock_pair(uow, person.id, mailing_list.id):
        return None
    record = changes.find_record(uow, mailing_list.id, person.id)
    if record is not None:
        opt_outs.apply_opt_outs(uow, record)
    return LockedSubscription(mailing_list, person, record)


def lock_list(uow: UnitOfWork, list_id: int) -> None:
    """Prevent all other changes of subscriptions to the list until the transaction ends.

    The caller must take shared locks (FOR KEY SHARE) on the rows of all people whose subscriptions
    the transaction changes. Raises ``TransientError`` after waiting too long for the lock on the
    list.
    """
    with _translate_lock_timeout():
        uow.session.execute(_LOCK_LIST, {"list_id": list_id})


def lock_list_for_chunk(uow: UnitOfWork, list_id: int) -> None:
    """Lock the list for a chunk of an import until the transaction ends.

    Until the transaction ends, only chunks of the same import can change the list's subscriptions.
    No person may be in two chunks that run at the same time. The caller must take shared locks (FOR
    KEY SHARE) on the rows of all people whose subscriptions the transaction changes. Raises
    ``TransientError`` after waiting too long for the lock on the list.
    """
    with _translate_lock_timeout():
        uow.session.execute(_LOCK_LIST_FOR_CHUNK, {"list_id": list_id})
        try:
            with uow.session.begin_nested():
                uow.session.execute(_ENTER_ROOM, {"list_id": list_id})
        except OperationalError as error:
            # Release the gate, because Postgres may have granted the lock at the moment of the
            # timeout. Don't use a session-level lock: a rollback doesn't release it, so that all
            # other transactions would wait.
            if not error.connection_invalidated:
                uow.session.execute(_RELEASE_GATE, {"list_id": list_id})
            raise
