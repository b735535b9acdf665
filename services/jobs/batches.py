"""Splits a job's work into turns of a few seconds, with one transaction per batch."""

import time
from collections.abc import Callable

from services.jobs.lease import Lease
from services.jobs.transitions import hand_back_job
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

# A small import waits at most this long for a large import. Shorter turns would spend more time on
# switching between jobs.
TURN_SECONDS = 4.0


class Turn:
    """A few seconds of a job's work. After a turn, the job goes to the end of the bulk queue."""

    def __init__(self) -> None:
        self._ends_at = time.monotonic() + TURN_SECONDS

    def is_over(self) -> bool:
        return time.monotonic() >= self._ends_at


def work_in_turns(
    resources: Resources, lease: Lease, run_step: Callable[[UnitOfWork], bool]
) -> None:
    """Call ``run_step`` repeatedly for one turn, each time in a new transaction.

    ``run_step`` returns true after the job's last step. If work remains at the end of the turn, the
    job is handed back to its queue.
    """
    turn = Turn()
    while not turn.is_over():
        lease.check_cancelled()
        with resources.unit_of_work() as uow:
            if run_step(uow):
                return
    with resources.unit_of_work() as uow:
        hand_back_job(uow, lease)
