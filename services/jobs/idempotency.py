"""``Idempotency-Key``: the same request sent twice has one effect and one answer.

The record is written in the transaction of the effect, under a UNIQUE constraint: of two requests
that race, one commits and the other finds its record. A record points at a job, whose present state
is the answer. Only success is recorded: the transition that fails a job deletes its record, and a
rollback never wrote one.

After draft-ietf-httpapi-idempotency-key-header.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from psycopg2.errors import LockNotAvailable
from sqlalchemy import func, select, text
from sqlalchemy.dialects.postgresql import insert

from core.errors import DomainError
from core.errors.requests import IDEMPOTENCY_IN_PROGRESS, IDEMPOTENCY_KEY_REUSED
from core.settings.notations import PlanQuota
from models import Attachment, IdempotencyRecord, Job, MemberImport, PaymentOrder
from services.access import quotas
from services.jobs.kinds import JobKind
from services.jobs.outbox import enqueue_job
from storage.connections import unless
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

KEY_EXPIRY = text("now() + interval '24 hours'")


@dataclass(frozen=True)
class IdempotencyKey:
    caller_id: int
    route: str
    key: str
    fingerprint: bytes  # SHA-256 of method, path, query and body


class EqualRequestCommitted(Exception):
    """An equal request committed first: roll back and answer what it answered."""


@dataclass(frozen=True)
class AcceptedJob:
    """Work that was accepted, now or (``replayed``) for an equal request before."""

    job_id: int
    subject_id: int
    replayed: bool = False


def once(
    resources: Resources, key: IdempotencyKey | None, accept: Callable[[], Job]
) -> AcceptedJob:
    """Accept work, unless an equal request had it accepted before.

    ``accept`` writes the job and binds the key to it in one transaction. When that raises
    ``EqualRequestCommitted``, it takes back what it did outside of the transaction.

    Raises what ``find_record`` and ``record`` do, and what ``accept`` does.
    """
    while True:
        if key is not None:
            with resources.unit_of_work() as uow:
                found = find_record(uow, key)
                if found is not None and found.job_id is not None:
                    return _accepted(uow.session.get_one(Job, found.job_id), replayed=True)
        try:
            return _accepted(accept())
        except EqualRequestCommitted:
            # The next round finds its job, or the key is free again since that job failed.
            continue


def _accepted(job: Job, *, replayed: bool = False) -> AcceptedJob:
    assert job.subject_id is not None
    return AcceptedJob(job.id, job.subject_id, replayed)


def commit(
    resources: Resources,
    subject: Attachment | MemberImport | PaymentOrder,
    kind: JobKind,
    key: IdempotencyKey | None,
    *,
    takes: Mapping[PlanQuota, int] | None = None,
) -> Job:
    """Store what was accepted with its job, and bind the key to the job, in one transaction.

    Raises ``quota.exceeded`` when the plan of the subject's user has no room for what it ``takes``.
    """
    with resources.unit_of_work() as uow:
        for quota, more in (takes or {}).items():
            assert subject.user_id is not None
            try:
                quotas.require(uow, subject.user_id, quota, more=more)
            except DomainError:
                # An equal request, for which this one waited, took the last of it.
                if key is not None and find_record(uow, key) is not None:
                    raise EqualRequestCommitted(key.key) from None
                raise
        uow.session.add(subject)
        uow.session.flush()
        job = enqueue_job(uow, kind, user_id=subject.user_id, subject_id=subject.id)
        if key is not None:
            record(uow, key, job_id=job.id)
    return job


def find_record(uow: UnitOfWork, key: IdempotencyKey) -> IdempotencyRecord | None:
    """The record of the key in the last 24 hours, if any; raises ``idempotency.key_reused``."""
    row = IdempotencyRecord
    of_key = row.caller_id == key.caller_id, row.route == key.route, row.key == key.key
    record = uow.session.scalar(select(row).where(*of_key, row.expires_at > func.now()))
    if record is not None and record.fingerprint != key.fingerprint:
        raise IDEMPOTENCY_KEY_REUSED()
    return record


def record(uow: UnitOfWork, key: IdempotencyKey, *, job_id: int) -> None:
    """Bind the key to the job, in the transaction that writes it.

    Waits for an equal request that is under way; raises ``EqualRequestCommitted`` when that one
    commits, ``idempotency.in_progress`` when it takes too long.
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
    with unless(LockNotAvailable, IDEMPOTENCY_IN_PROGRESS()):
        recorded = uow.session.scalar(statement)
    if recorded is None:
        raise EqualRequestCommitted(key.key)
