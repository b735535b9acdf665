"""Registers kinds of probe jobs. A probe job does what a test has written into the job's plan.

A test must first create the database tables in `TABLES`. The plan of each probe job is a row of the
table `probe_plans`. When a probe job records its progress or ends, it also inserts a row into
`probe_effects` in the same transaction.
"""

from typing import Any

import psycopg2.extras
from sqlalchemy import text

from core.ids import AccountId
from core.permissions import Permission
from core.queues import Queue
from core.scopes import Scope
from models import Job
from services.jobs.kinds import JobKind, JobPermissions, register_kind
from services.jobs.lease import Lease
from services.jobs.outbox import enqueue_job
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

TABLES = """
    CREATE TABLE probe_plans (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        plan jsonb NOT NULL,
        abandoned integer NOT NULL DEFAULT 0
    );
    CREATE TABLE probe_effects (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        job_id bigint NOT NULL,
        step integer NOT NULL DEFAULT 0,
        attempt integer NOT NULL,
        pid integer NOT NULL
    );
    CREATE TABLE probe_starts (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        job_id bigint NOT NULL,
        attempt integer NOT NULL,
        pid integer NOT NULL,
        at timestamptz NOT NULL DEFAULT clock_timestamp()
    );
"""


def _count_abandoned(uow: UnitOfWork, job: Job) -> None:
    uow.session.execute(
        text("UPDATE probe_plans SET abandoned = abandoned + 1 WHERE id = :id"),
        {"id": job.subject_id},
    )


def _run_probe(resources: Resources, lease: Lease) -> None:
    from tests.support.probe import tasks

    tasks.run(resources, lease)


def _register_probe(name: str, queue: Queue, deadline_seconds: float = 60.0) -> JobKind:
    return register_kind(
        JobKind(
            name=name,
            run=_run_probe,
            queue=queue,
            scope=Scope.ATTACHMENT,
            permissions=JobPermissions(Permission.IMAGES, Permission.IMAGES),
            retryable=True,
            on_abandoned=_count_abandoned,
            deadline_seconds=deadline_seconds,
        )
    )


PROBE = _register_probe("probe.run", Queue.BULK)
PROBES = {
    queue: PROBE if queue is PROBE.queue else _register_probe(f"probe.{queue}", queue)
    for queue in tuple(Queue)
}

# The kinds of probe jobs with a deadline of one second for each attempt.
BRIEF_PROBE = _register_probe("probe.brief", Queue.MAIL, deadline_seconds=1.0)
BRIEF_BULK_PROBE = _register_probe("probe.brief_bulk", Queue.BULK, deadline_seconds=1.0)


def enqueue_probe(
    uow: UnitOfWork,
    steps: dict[str, Any],
    *,
    account_id: AccountId | None = None,
    on_behalf_of: int | None = None,
    kind: JobKind = PROBE,
) -> Job:
    """Enqueue a probe job in the caller's transaction."""
    subject_id = uow.session.scalar(
        text("INSERT INTO probe_plans (plan) VALUES (:plan) RETURNING id"),
        {"plan": psycopg2.extras.Json(steps)},
    )
    return enqueue_job(
        uow, kind, account_id=account_id, on_behalf_of=on_behalf_of, subject_id=subject_id
    )


def enqueue_committed_probe(
    resources: Resources,
    on_behalf_of: int | None = None,
    /,
    *,
    kind: JobKind = PROBE,
    **steps: Any,
) -> int:
    with resources.unit_of_work() as uow:
        return enqueue_probe(uow, steps, on_behalf_of=on_behalf_of, kind=kind).id
