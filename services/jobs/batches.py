"""Splits a job's work into turns of a few seconds, and each turn into database transactions."""

import time
from collections.abc import Callable

from services.jobs.lease import Lease
from services.jobs.transitions import hand_back_job
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

# Turns are short, so that a small import waits only a few seconds for a large one. With turns of
# less than a second, workers would spend too much time switching between jobs.
TURN_SECONDS = 4.0


class Turn:
    """A turn, a period of a few seconds in which a worker runs a single job.

    After its turn, an unfinished job returns to the end of the bulk queue.
    """

    def __init__(self) -> None:
        self._ends_at = time.monotonic() + TURN_SECONDS

    def is_over(self) -> bool:
        return time.monotonic() >= self._ends_at


def work_in_turns(
    resources: Resources, lease: Lease, run_step: Callable[[UnitOfWork], bool]
) -> None:
    """Call ``run_step`` repeatedly until the job's turn ends, each time in a new transaction.

    ``run_step`` returns true after the job's last step. An unfinished job is requeued when its turn
    ends.
    """
    turn = Turn()
    while not turn.is_over():
        lease.check_cancelled()
        with resources.unit_of_work() as uow:
            if run_step(uow):
                return
    with resources.unit_of_work() as uow:
        hand_back_job(uow, lease)
