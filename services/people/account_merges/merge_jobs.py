"""The job of a merge. What asks for it is here, and what does it stands above the lists."""

from datetime import timedelta

from sqlalchemy import func

from core.lanes import Lane
from core.scopes import Scope
from models import AccountMerge
from services.jobs import kinds, outbox
from storage.unit_of_work import UnitOfWork

MERGE_RECORDS = kinds.register(
    kinds.JobKind(
        name="account.merge",
        lane=Lane.UPKEEP,
        # No user sees such a job.
        scope=Scope.SUBSCRIPTION_FULL,
        retryable=True,
        # Both records are the person's, and one of them has no address meanwhile.
        patience=timedelta(days=365),
    )
)


def enqueue(uow: UnitOfWork, merge: AccountMerge, *, after: timedelta) -> None:
    """Have the merge go on, but not before that time has passed."""
    job = outbox.enqueue(
        uow, MERGE_RECORDS, user_id=None, on_behalf_of=merge.user_id, subject_id=merge.id
    )
    job.sends = 0
    job.run_at = job.send_after = func.now() + after
    merge.job_id = job.id
