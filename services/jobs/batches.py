"""Work in batches, one transaction per batch, in turns of a few seconds."""

import time
from collections.abc import Callable

from services.jobs.lease import Lease
from services.jobs.transitions import hand_back_job
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

# Long enough that alternating costs little. Short enough that a small import waits no longer than
# this for a large one.
TURN_SECONDS = 4.0


class Turn:
    """A few seconds of work, after which a job goes to the end of the bulk queue."""

    def __init__(self) -> None:
        self._ends_at = time.monotonic() + TURN_SECONDS

    def is_over(self) -> bool:
        return time.monotonic() >= self._ends_at


def work_in_turns(
    resources: Resources, lease: Lease, take_step: Callable[[UnitOfWork], bool]
) -> None:
    """Call ``take_step`` for one turn, each time in a new transaction.

    ``take_step`` returns true if its step was the last one. Otherwise the job is handed back when
    the turn is over.
    """
    turn = Turn()
    while not turn.is_over():
        lease.check_cancelled()
        with resources.unit_of_work() as uow:
            if take_step(uow):
                return
    with resources.unit_of_work() as uow:
        hand_back_job(uow, lease)
