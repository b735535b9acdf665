"""Locks subscriptions, so that only one transaction at a time can change a subscription.

Pressroom uses advisory locks, because Postgres can't lock a missing row. An owner can add a person
who has no row in ``subscriptions`` while the person opts out. To change a single subscription, a
transaction locks the pair of list and person exclusively, and takes a shared lock on the list. A
bulk action locks the list exclusively, because locking each subscription would take too many locks.

Several chunks of a file can be imported at the same time, because no person is in two chunks. Each
chunk takes a shared lock on the list, so that no bulk action runs at the same time. The gate lock
and the room lock of the list exclude changes of single subscriptions:

- A transaction that imports a chunk takes the gate lock in exclusive mode, and then the room lock
  in shared mode. It releases the gate lock, and keeps the room lock until the transaction ends.
- A transaction that changes a single subscription takes the gate lock in shared mode, so that no
  other chunk can begin. The transaction then waits until no transaction holds the room lock.

The algorithm comes from "Concurrent control with readers and writers" by Courtois and others
(1971).

Every change of a subscription takes a shared lock on the person's row in ``users``, so that no data
about an erased person is stored. An erasure locks the row exclusively before it marks the person as
erased. The job that clears an erased person's subscriptions takes a shared lock on each list.

To avoid deadlocks, every transaction takes its locks in the same order: list, gate lock, room lock,
new rows in ``users``, pairs of list and person, existing rows in ``users``.

A transaction that changes a single subscription waits at most two seconds for each lock. The
transactions of an import end within two seconds, but a bulk action can lock a list for longer.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import psycopg2.errors
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from core.errors import TransientError
from core.errors.mailing import LIST_BUSY
from core.ids import PersonId
from models import MailingList, Subscription, SubscriptionStatus, User
from services.subscriptions.members import changes, opt_outs
from storage.expected_errors import raise_instead
from storage.unit_of_work import UnitOfWork

# SQL expressions for the keys of a list's two advisory locks, the gate lock and the room lock. The
# keys of different advisory locks are never equal, because list ids are positive and below 2**53,
# and keys for pairs of list and person are negative.
_GATE = "(:list_id + 9007199254740992)"
_ROOM = "(:list_id + 18014398509481984)"
# The room lock is taken only to wait for running chunks, and is released by the rollback to the
# savepoint.
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
# The lock ``_GATE`` is a session-level lock, because ``_GATE`` must be released before the
# transaction ends. The shared lock on ``_ROOM`` is free while this session holds ``_GATE``, because
# an exclusive lock on ``_ROOM`` requires ``_GATE``.
_ENTER_ROOM = text(
    f"SELECT pg_advisory_lock({_GATE}), pg_advisory_xact_lock_shared({_ROOM}),"
    f" pg_advisory_unlock({_GATE})"
)
# Check in ``pg_locks`` whether the session holds the lock, because releasing a lock that isn't held
# logs a warning. The view ``pg_locks`` splits the key of an advisory lock into two columns.
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
_LOCK_PEOPLE_SHARED = text(
    "SELECT id FROM users WHERE id = ANY (CAST(:user_ids AS bigint[])) AND erased_at IS NULL"
    " ORDER BY id FOR KEY SHARE"
)
# A job that must lock more than this number of a list's subscriptions locks the whole list, because
# the lock table of Postgres has room for only a few thousand advisory locks of all transactions.
_MAX_LOCKED_PAIRS_PER_LIST = 50


@dataclass(frozen=True)
class LockedSubscription:
    """A subscription that is locked until the transaction ends.

    ``record`` is ``None`` if the list has never had a record of the person.
    """

    mailing_list: MailingList
    person: User
    record: Subscription | None

    @property
    def is_active(self) -> bool:
        return self.record is not None and self.record.status == SubscriptionStatus.ACTIVE

    @property
    def addresses(self) -> set[str]:
        return collect_addresses(self.person, self.record)


def collect_addresses(person: User, record: Subscription | None) -> set[str]:
    addresses = {person.email}
    if record is not None and record.email is not None:
        addresses.add(record.email)
    return addresses


@contextmanager
def limit_lock_waits(uow: UnitOfWork) -> Iterator[None]:
    """Limit each wait for a lock to two seconds until the transaction ends.

    After ``list.busy``, the caller must roll back.
    """
    # Flush pending writes inside the ``with`` block, so that a flush that waits too long for a lock
    # raises ``list.busy``.
    with uow.session.no_autoflush:
        uow.session.execute(_LIMIT_LOCK_WAITS)
    with raise_instead(psycopg2.errors.LockNotAvailable, LIST_BUSY()):
        yield


def lock_list_shared(uow: UnitOfWork, list_id: int) -> None:
    """Prevent bulk actions until the transaction ends.

    To avoid deadlocks, lock the list before you create a person.
    """
    with limit_lock_waits(uow):
        uow.session.execute(_LOCK_LIST_SHARED, {"list_id": list_id})


def lock_lists_shared(uow: UnitOfWork, *list_ids: int) -> None:
    """Prevent bulk actions, or raise ``TransientError`` after the session's ``lock_timeout``."""
    with _translate_lock_timeout():
        for list_id in sorted(list_ids):
            uow.session.execute(_LOCK_LIST_SHARED, {"list_id": list_id})


def _translate_lock_timeout() -> AbstractContextManager[None]:
    """Raise ``TransientError``, so that the worker retries the job."""
    return raise_instead(
        psycopg2.errors.LockNotAvailable, TransientError("Another request is changing the list.")
    )


def lock_pair(
    uow: UnitOfWork, person_id: PersonId, *list_ids: int, wait_for_lists: bool = True
) -> bool:
    """Lock subscriptions, and return whether the person exists and hasn't been erased.

    Otherwise, the caller must not change any records. If ``wait_for_lists`` is false, raise
    ``list.busy`` immediately while a bulk action locks a list.
    """
    lock_list_statement = _LOCK_LIST_SHARED if wait_for_lists else _TRY_LOCK_LIST_SHARED
    with limit_lock_waits(uow):
        # Lock the lists in ascending order of their ids, so that two transactions can't deadlock.
        for list_id in sorted(set(list_ids)):
            if uow.session.scalar(lock_list_statement, {"list_id": list_id}) is False:
                raise LIST_BUSY()
        for list_id in sorted(set(list_ids)):
            uow.session.execute(_LOCK_PAIR, {"list_id": list_id, "user_id": person_id})
        return lock_person_shared(uow, person_id)


def lock_person_shared(uow: UnitOfWork, person_id: PersonId) -> bool:
    """Prevent the person's erasure until the transaction ends.

    Return whether the person exists and hasn't been erased.
    """
    return uow.session.scalar(_LOCK_PERSON_SHARED, {"user_id": person_id}) is not None


def lock_subscription(
    uow: UnitOfWork, mailing_list: MailingList, person: User
) -> LockedSubscription | None:
    """Return ``None`` if the person is erased.

    If the person has opted out, the function first updates the subscription accordingly.
    """
    if not lock_pair(uow, person.id, mailing_list.id):
        return None
    record = changes.find_record(uow, mailing_list.id, person.id)
    if record is not None:
        opt_outs.apply_opt_outs(uow, record)
    return LockedSubscription(mailing_list, person, record)


def lock_members(
    uow: UnitOfWork, pairs: Collection[tuple[int, int]], *, wait_for_lists: bool = True
) -> set[int]:
    """Lock pairs of a list id and a user id, and return the ids of people who aren't erased.

    The function locks a whole list for more than ``_MAX_LOCKED_PAIRS_PER_LIST`` pairs, which
    requires ``wait_for_lists``. Without waiting, ``TransientError`` is raised immediately for a
    locked list.
    """
    counts = Counter(list_id for list_id, _ in pairs)
    is_crowded = {each: count > _MAX_LOCKED_PAIRS_PER_LIST for each, count in counts.items()}
    with _translate_lock_timeout():
        for list_id in sorted(counts):
            statement = _LOCK_LIST if is_crowded[list_id] else _LOCK_LIST_SHARED
            if not wait_for_lists:
                statement = _TRY_LOCK_LIST_SHARED
            if uow.session.scalar(statement, {"list_id": list_id}) is False:
                raise TransientError("Another request is changing the list.")
        for list_id, user_id in sorted(pairs):
            if not is_crowded[list_id]:
                uow.session.execute(_LOCK_PAIR, {"list_id": list_id, "user_id": user_id})
        user_ids = sorted({user_id for _, user_id in pairs})
        return set(uow.session.scalars(_LOCK_PEOPLE_SHARED, {"user_ids": user_ids}))


def lock_list(uow: UnitOfWork, list_id: int) -> None:
    """Block other transactions that change the list's subscriptions until this transaction ends.

    The caller must take FOR KEY SHARE locks on the rows of all people whose subscriptions are
    changed.
    """
    with _translate_lock_timeout():
        uow.session.execute(_LOCK_LIST, {"list_id": list_id})


def lock_list_for_chunk(uow: UnitOfWork, list_id: int) -> None:
    """Lock the list until the end of the transaction, which imports a chunk of a file.

    Chunks that are imported at the same time must contain different people. The caller must lock
    people's rows as for ``lock_list``.
    """
    with _translate_lock_timeout():
        uow.session.execute(_LOCK_LIST_FOR_CHUNK, {"list_id": list_id})
        try:
            with uow.session.begin_nested():
                uow.session.execute(_ENTER_ROOM, {"list_id": list_id})
        except OperationalError as error:
            # Release the gate lock, because Postgres may have granted it at the moment of the
            # timeout. The gate lock is a session-level advisory lock, which a rollback doesn't
            # release. Without this statement, all other transactions would wait for the gate lock.
            if not error.connection_invalidated:
                uow.session.execute(_RELEASE_GATE, {"list_id": list_id})
            raise
