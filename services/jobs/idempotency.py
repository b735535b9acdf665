"""Idempotency keys: the same request sent twice has one effect and one response.

The record of a key is written in the transaction of the effect, under a UNIQUE constraint. If two
requests race, one commits and the other one finds its record. A record points at a job, and the
present state of that job is the response. Only success is recorded: a rollback writes no record,
and the transition that fails a job deletes its record.

The header ``Idempotency-Key`` follows draft-ietf-httpapi-idempotency-key-header.
"""

from collections.abc import Callable
from dataclasses import dataclass

from psycopg2.errors import LockNotAvailable
from sqlalchemy import func, select, text
from sqlalchemy.dialects.postgresql import insert

from core.errors import DomainError
from core.errors.requests import IDEMPOTENCY_IN_PROGRESS, IDEMPOTENCY_KEY_REUSED
from models import IdempotencyRecord, Job
from storage.expected_errors import raise_instead
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

KEY_EXPIRY = text("now() + interval '24 hours'")


@dataclass(frozen=True)
class IdempotencyKey:
    """The key of a request.

    Attributes:
        fingerprint: SHA-256 of the request's method, path, query and body.
    """

    caller_id: int
    route: str
    key: str
    fingerprint: bytes


@dataclass(frozen=True)
class AcceptedJob:
    """A job for accepted work. ``replayed`` says that an equal request created the job before."""

    job_id: int
    subject_id: int
    replayed: bool = False


class _EqualRequestCommitted(Exception):
    """An equal request committed first, so this transaction must be rolled back."""


def find_accepted(resources: Resources, key: IdempotencyKey | None) -> AcceptedJob | None:
    """Return the job of an equal request that was accepted before.

    A caller that writes objects looks here first, to avoid writing them for nothing. Raises
    ``idempotency.key_reused``.
    """
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
    """Accept work in one transaction, unless an equal request was accepted before.

    ``store``: writes the subject and its job. It is called again if an equal request committed
    first and then failed.

    Raises what ``store`` raises, ``idempotency.key_reused`` and ``idempotency.in_progress``.
    """
    while True:
        accepted = find_accepted(resources, key)
        if accepted is not None:
            return accepted
        try:
            return _store_job(resources, key, store)
        except _EqualRequestCommitted:
            # The next round finds the job of that request, or a free key if the job failed.
            continue


def _store_job(
    resources: Resources, key: IdempotencyKey | None, store: Callable[[UnitOfWork], Job]
) -> AcceptedJob:
    with resources.unit_of_work() as uow:
        try:
            job = store(uow)
        except DomainError:
            # ``store`` may have waited for an equal request that used up the quota.
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
    """Return the record of the key, unless it has expired. Raises ``idempotency.key_reused``."""
    table = IdempotencyRecord
    query = select(table).where(
        table.caller_id == key.caller_id,
        table.route == key.route,
        table.key == key.key,
        table.expires_at > func.now(),
    )
    record = uow.session.scalar(query)
    if record is not None and record.fingerprint != key.fingerprint:
        raise IDEMPOTENCY_KEY_REUSED()
    return record


def _bind_key(uow: UnitOfWork, key: IdempotencyKey, *, job_id: int) -> None:
    """Bind the key to the job, in the transaction that writes the job.

    The statement waits for an equal request in progress. Raises ``_EqualRequestCommitted`` if that
    request commits, and ``idempotency.in_progress`` if it takes too long.
    """
    values = {"fingerprint": key.fingerprint, "job_id": job_id, "answer": None}
    statement = (
        insert(IdempotencyRecord)
        .values(caller_id=key.caller_id, route=key.route, key=key.key, **values)
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
