"""Jobs in a worker: the one that a message names, and with it those that take turns in the process.

The turns of some jobs must be in one process, such as those that read one file. Such a job stays:
between its turns, the process takes one of another job that waits in the lane. So other owners wait
for one turn, and the job keeps what it has open.
"""

import time
from collections import deque
from collections.abc import Mapping
from contextlib import closing

from celery import current_task
from sqlalchemy import func, select

from core.logging import get_logger
from models import Job, JobStatus
from services.jobs import lease as leases
from services.jobs.kinds import JobKind, kind_named
from services.jobs.lease import Lease
from services.jobs.outbox import RECENT
from storage.resources import Resources
from workers.context import WorkerContext
from workers.running.attempts import JobAttempt, JobWork

log = get_logger(__name__)


def run_job(context: WorkerContext, *, job_id: int, works: Mapping[JobKind, JobWork]) -> None:
    """Do the job. A second delivery of its message ends at the claim."""
    with context.resources.unit_of_work() as uow:
        lease = leases.claim(uow, job_id)
    if lease is None:
        log.debug("job.not_claimed", job_id=job_id)
        return
    rotation = _Rotation(context, works, kind_named(lease.kind))
    began = time.monotonic()
    with closing(rotation):
        try:
            rotation.run(lease)
        except SystemExit:
            # The pool ends a process at the end of the worker's grace, or when the task has run
            # past its hard time limit; only the latter counts as a crash.
            if time.monotonic() - began < current_task.time_limit:
                rotation.hand_back()
            raise


class _Rotation:
    """The jobs that take turns in this process, while the first of them stays or others do."""

    def __init__(
        self, context: WorkerContext, works: Mapping[JobKind, JobWork], kind: JobKind
    ) -> None:
        self._context = context
        self._works = works
        self._first = kind
        self._ends = time.monotonic() + kind.max_stay_seconds
        self._attempts: deque[JobAttempt] = deque()

    def run(self, lease: Lease) -> None:
        self._add(lease)
        while self._attempts:
            attempt = self._attempts[0]
            stays = attempt.take_turn()
            if stays and time.monotonic() < self._ends:
                self._attempts.rotate(-1)
            else:
                if stays:
                    attempt.hand_back()
                self._attempts.popleft().close()
            if self._attempts and (waiting := self._claim_next()) is not None:
                self._add(waiting)

    def hand_back(self) -> None:
        for attempt in self._attempts:
            attempt.hand_back()

    def close(self) -> None:
        for attempt in self._attempts:
            attempt.close()

    def _add(self, lease: Lease) -> None:
        """Before the others: each of those has had a turn since."""
        work = self._works[kind_named(lease.kind)]
        own_limits = bool(self._first.max_stay_seconds)
        self._attempts.appendleft(JobAttempt(self._context, lease, work, has_own_limits=own_limits))

    def _claim_next(self) -> Lease | None:
        resources: Resources = self._context.resources
        waiting = (
            select(Job.id)
            .where(
                Job.status == JobStatus.QUEUED,
                Job.lane == self._first.lane,
                Job.sends > 0,
                # The sweep keeps all that were sent among these.
                Job.send_after > func.now() - RECENT,
                Job.run_at <= func.now(),
                Job.kind.in_([kind.name for kind in self._works]),
            )
            .order_by(Job.send_after)
            .limit(1)
        )
        with resources.unit_of_work() as uow:
            job_id = uow.session.scalar(waiting)
            return None if job_id is None else leases.claim(uow, job_id)
