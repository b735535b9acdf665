"""Splits a job's work into turns of a few seconds, and each turn into database transactions."""

import time
from collections.abc import Callable

from services.jobs.kinds import get_kind, list_kinds
from services.jobs.lease import Lease
from services.jobs.outbox import RECENT_WINDOW
from services.jobs.transitions import MAX_SLOW_ATTEMPTS_IN_TURN, hand_back_job
from storage.database import Statement
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

TURN_SECONDS = 4.0
# The length of a turn while another job waits. With even shorter turns, workers would spend too
# much time switching between jobs.
MIN_TURN_SECONDS = 0.2
# Jobs with the same kind and subject, such as the helpers of an import, don't wait for each other.
# A job that was too slow waits until its queue has no other job.
_HAS_WAITING_JOB = Statement("""
    SELECT EXISTS (
        SELECT FROM jobs WHERE status = 'queued' AND queue = :queue AND sends > 0
            AND send_after > now() - CAST(:recent AS interval) AND run_at <= now()
            AND kind = ANY(:kinds) AND (kind, subject_id) <> (:kind, :subject_id)
            AND slow_attempts < :max_slow_attempts
    )
    """)


class Turn:
    """A turn ends early if another job waits, so that a short job needn't wait long."""

    def __init__(self, resources: Resources, lease: Lease) -> None:
        self._resources = resources
        self._lease = lease
        self._began_at = time.monotonic()

    def is_over(self) -> bool:
        seconds = time.monotonic() - self._began_at
        return seconds >= TURN_SECONDS or (seconds >= MIN_TURN_SECONDS and self._has_waiting_job())

    def _has_waiting_job(self) -> bool:
        [(has_job,)] = self._resources.database.rows(
            _HAS_WAITING_JOB,
            queue=get_kind(self._lease.kind).queue,
            recent=RECENT_WINDOW,
            kinds=[kind.name for kind in list_kinds()],
            kind=self._lease.kind,
            subject_id=self._lease.subject_id,
            max_slow_attempts=MAX_SLOW_ATTEMPTS_IN_TURN,
        )
        return bool(has_job)


def work_in_turns(
    resources: Resources, lease: Lease, run_step: Callable[[UnitOfWork], bool]
) -> None:
    """Call ``run_step`` in a new transaction each time, until it returns true or the turn ends.

    An unfinished job returns to the end of the bulk queue.
    """
    turn = Turn(resources, lease)
    while not turn.is_over():
        lease.check_cancelled()
        with resources.unit_of_work() as uow:
            if run_step(uow):
                return
    with resources.unit_of_work() as uow:
        hand_back_job(uow, lease)
