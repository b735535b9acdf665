"""Implements idempotency keys, so that a repeated API request has one effect and one response.

An idempotency key is stored in the same transaction as the job that its request creates. The
response to a repeated request describes the job's current state. If a request or its job fails, the
idempotency key can be used again.

The header ``Idempotency-Key`` follows the IETF draft draft-ietf-httpapi-idempotency-key-header.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from psycopg2.errors import LockNotAvailable
from sqlalchemy import func, select, text
from sqlalchemy.dialects.postgresql import insert

from core.errors import DomainError
from core.errors.requests import IDEMPOTENCY_IN_PROGRESS, IDEMPOTENCY_KEY_REUSED
from core.ids import AccountId
from models import IdempotencyRecord, Job
from storage.expected_errors import raise_instead
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

KEY_EXPIRY = text("now() + interval '24 hours'")

T = TypeVar("T")


@dataclass(frozen=True)
class IdempotencyKey:
    """``fingerprint`` is the SHA-256 hash of the request's method, path, query and body."""

    account_id: AccountId
    route: str
    key: str
    fingerprint: bytes


@dataclass(frozen=True)
class AcceptedJob:
    """``replayed`` is true if an earlier request with the same key created the job."""

    job_id: int
    subject_id: int
    replayed: bool = False


class _EqualRequestCommitted(Exception):
    pass


def find_accepted(resources: Resources, key: IdempotencyKey | None) -> AcceptedJob | None:
    """Uploads call ``find_accepted`` first, to avoid storing a repeated request's file twice."""
    if key is None:
        return None
    with resources.unit_of_work() as uow:
        record = _find_record(uow, key)
        if record is None or record.job_id is None:
            return None
        return _describe_job(uow.session.get_one(Job, record.job_id), replayed=True)


def accept_once(
    resources: Resources, key: IdempotencyKey | None, store: Callable[[UnitOfWork], Job]
) -> AcceptedJob:
    """``store`` is called again if a simultaneous request commits first but its job fails."""
    return repeat_after_equal_request(
        lambda: find_accepted(resources, key) or _store_job(resources, key, store)
    )


def repeat_after_equal_request(work: Callable[[], T]) -> T:
    """Call ``work`` again whenever a simultaneous request with the same key commits first.

    ``work`` must look up the idempotency key before it takes effect.
    """
    while True:
        try:
            return work()
        except _EqualRequestCommitted:
            continue


def find_answer(uow: UnitOfWork, key: IdempotencyKey | None) -> dict[str, Any] | None:
    """Return the answer of an earlier request with the same key, or ``None``."""
    record = None if key is None else _find_record(uow, key)
    return None if record is None else record.answer


def store_answer(uow: UnitOfWork, key: IdempotencyKey | None, answer: dict[str, Any]) -> None:
    """Call this function inside of ``repeat_after_equal_request``."""
    if key is not None:
        _bind_key(uow, key, answer=answer)


def _store_job(
    resources: Resources, key: IdempotencyKey | None, store: Callable[[UnitOfWork], Job]
) -> AcceptedJob:
    with resources.unit_of_work() as uow:
        try:
            job = store(uow)
        except DomainError:
            # Look up the idempotency key again, because a simultaneous request with the same key
            # may have used up the quota.
            if key is not None and _find_record(uow, key) is not None:
                raise _EqualRequestCommitted from None
            raise
        if key is not None:
            _bind_key(uow, key, job_id=job.id)
    return _describe_job(job)


def _describe_job(job: Job, *, replayed: bool = False) -> AcceptedJob:
    assert job.subject_id is not None
    return AcceptedJob(job.id, job.subject_id, replayed)


def _find_record(uow: UnitOfWork, key: IdempotencyKey) -> IdempotencyRecord | None:
    table = IdempotencyRecord
    query = select(table).where(
        table.caller_id == key.account_id,
        table.route == key.route,
        table.key == key.key,
        table.expires_at > func.now(),
    )
    record = uow.session.scalar(query)
    if record is not None and record.fingerprint != key.fingerprint:
        raise IDEMPOTENCY_KEY_REUSED()
    return record


def _bind_key(
    uow: UnitOfWork,
    key: IdempotencyKey,
    *,
    job_id: int | None = None,
    answer: dict[str, Any] | None = None,
) -> None:
    """Store the idempotency key with the job, or with the answer.

    The INSERT waits for a simultaneous request with the same key. Raises ``_EqualRequestCommitted``
    if that request commits first, and ``idempotency.in_progress`` if it takes too long.
    """
    values = {"fingerprint": key.fingerprint, "job_id": job_id, "answer": answer}
    statement = (
        insert(IdempotencyRecord)
        .values(caller_id=key.account_id, route=key.route, key=key.key, **values)
        .on_conflict_do_update(
            index_elements=["caller_id", "route", "key"],
            set_={**values, "expires_at": KEY_EXPIRY, "created_at": func.now()},
            where=IdempotencyRecord.expires_at <= func.now(),
        )
        .returning(IdempotencyRecord.id)
    )
    with raise_instead(LockNotAvailable, IDEMPOTENCY_IN_PROGRESS()):
        record_id = uow.session.scalar(statement)
    if record_id is None:
        raise _EqualRequestCommitted
