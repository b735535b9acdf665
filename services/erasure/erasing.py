"""The job of an erasure: one batch a transaction, in turns of a few seconds.

A worker that dies leaves whole batches. The next one goes on at the bookmark.
"""

import time
from datetime import timedelta

from sqlalchemy import func

from core.errors import DomainError, TransientError
from models import Erasure
from services.erasure import marking, stages
from services.jobs import lease as leases
from services.jobs.lease import Lease
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

# Other work of the lane comes in between.
ERASING_TURN_SECONDS = 4.0
# No request that read the person before they were marked is under way for longer.
LOOK_AGAIN_AFTER = timedelta(hours=1)


def run(resources: Resources, lease: Lease) -> None:
    """Take one turn."""
    ends_by = time.monotonic() + ERASING_TURN_SECONDS
    while time.monotonic() < ends_by:
        try:
            with resources.unit_of_work() as uow:
                has_ended = _take_step(uow, lease)
        except DomainError as error:
            # No refusal ends an erasure: what stands in its way now may be gone later.
            raise TransientError(error.message) from error
        if has_ended:
            return
    with resources.unit_of_work() as uow:
        leases.yield_turn(uow, lease)


def _take_step(uow: UnitOfWork, lease: Lease) -> bool:
    """Erase one batch, of the next stage that finds anything, or end; whether it was the end."""
    erasure = uow.session.get_one(Erasure, lease.subject_id)
    names = list(stages.STAGES)
    # A stage that this release does not know: another release began, so begin anew.
    place = names.index(erasure.stage) if erasure.stage in names else 0
    rows, bookmark = 0, erasure.bookmark
    while place < len(names):
        rows, bookmark = stages.STAGES[names[place]](uow, erasure.user_id, bookmark)
        if rows or bookmark is not None:
            break
        place += 1
    else:
        _end(uow, lease, erasure)
        return True
    counts = {**erasure.counts, names[place]: erasure.counts.get(names[place], 0) + rows}
    # Fails if another worker has the job now, and takes the batch back.
    leases.progress(uow, lease, done=sum(counts.values()))
    place += bookmark is None and place < len(names) - 1
    erasure.stage, erasure.bookmark, erasure.counts = names[place], bookmark, counts
    return False


def _end(uow: UnitOfWork, lease: Lease, erasure: Erasure) -> None:
    told = {name: erasure.counts.get(name, 0) for name in stages.TOLD}
    leases.succeed(uow, lease, {"user_id": erasure.user_id, **told})
    erasure.stage = erasure.bookmark = erasure.address_hmac = None
    if erasure.finished_at is None:
        erasure.finished_at = func.now()
        marking.look_again(uow, erasure, after=LOOK_AGAIN_AFTER)
