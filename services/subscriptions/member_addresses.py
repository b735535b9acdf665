"""Writes the new address of a person into the records of the person's lists.

The owner of a list sees the address in the list's record. An undo can't make an owner forget an
address. The job therefore only writes the new address after the person can no longer undo the
change of the address.
"""

from datetime import timedelta

from sqlalchemy import and_, func, select, text

from core.errors import DomainError, TransientError
from core.queues import Queue
from core.scopes import Scope
from models import FormerAddress, Subscription, User
from services.accounts.account_mails import MailKind
from services.accounts.mailed_tokens import TOKEN_LIFETIMES, Purpose
from services.jobs.batches import work_in_turns
from services.jobs.kinds import JobKind, register_kind
from services.jobs.lease import Lease
from services.jobs.outbox import enqueue_job
from services.jobs.transitions import complete_job, record_progress
from services.subscriptions.members import changes, locks
from services.subscriptions.members.changes import Actor, ActorKind, Via
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

# A batch blocks bulk actions on this many lists.
MAX_BATCH_LISTS = 20
# An undo that a person requests at the last moment ends within this time.
_UNDO_MARGIN = timedelta(minutes=1)
# The query returns the time for which a person can still undo a change of the address. If the mail
# with the undo link isn't sent yet, the time is the full lifetime of the link.
_SELECT_REMAINING_UNDO_TIME = text("""
SELECT greatest((
    SELECT max(expires_at) FROM mailed_links
    WHERE user_id = :user_id AND purpose = :undo AND used_at IS NULL
), (
    SELECT now() + :lifetime FROM account_mails
    WHERE user_id = :user_id AND kind = :changed AND sent_at IS NULL LIMIT 1
)) - now()
""")


def schedule_address_update(
    uow: UnitOfWork, user_id: int, *, after: timedelta = TOKEN_LIFETIMES[Purpose.UNDO_ADDRESS]
) -> None:
    """Schedule the job that writes the account's address into the records of all lists."""
    job = enqueue_job(uow, UPDATE_ADDRESS, user_id=None, on_behalf_of=user_id, subject_id=user_id)
    job.sends = 0
    job.run_at = func.now() + after + _UNDO_MARGIN
    job.send_after = func.now() + after + _UNDO_MARGIN


def run_address_update(resources: Resources, lease: Lease) -> None:
    """Run one turn of the job, which skips records that already contain the address."""
    user_id = lease.subject_id
    assert user_id is not None
    values = {
        "user_id": user_id,
        "undo": Purpose.UNDO_ADDRESS,
        "changed": MailKind.ADDRESS_CHANGED,
        "lifetime": TOKEN_LIFETIMES[Purpose.UNDO_ADDRESS],
    }
    with resources.unit_of_work() as uow:
        remaining_time = uow.session.scalar(_SELECT_REMAINING_UNDO_TIME, values)
        if remaining_time is not None and remaining_time > timedelta(0):
            schedule_address_update(uow, user_id, after=remaining_time)
            complete_job(uow, lease, {})
            return
    last_list_id: int | None = 0

    def update_batch(uow: UnitOfWork) -> bool:
        nonlocal last_list_id
        last_list_id = _update_batch(uow, lease, user_id, last_list_id or 0)
        return last_list_id is None

    try:
        work_in_turns(resources, lease, update_batch)
    except DomainError as error:
        raise TransientError(error.message) from error


UPDATE_ADDRESS = register_kind(
    JobKind(
        "account.show_address",
        Queue.MAINTENANCE,
        Scope.SUBSCRIPTION_FULL,
        retryable=True,
        run=run_address_update,
    )
)


def _update_batch(uow: UnitOfWork, lease: Lease, user_id: int, after: int) -> int | None:
    """Write the address into one batch of records, and return the id of the batch's last list.

    Complete the job and return ``None`` if no records are left.
    """
    # After an undo or another change of the address, the query returns no address.
    is_current = and_(FormerAddress.user_id == User.id, FormerAddress.shown == User.email)
    new_address = select(User.email).where(User.id == user_id, is_current).limit(1)
    query = (
        select(Subscription.list_id)
        .where(
            Subscription.user_id == user_id,
            Subscription.list_id > after,
            Subscription.email != new_address.scalar_subquery(),
        )
        .order_by(Subscription.list_id)
        .limit(MAX_BATCH_LISTS)
    )
    list_ids = list(uow.session.scalars(query))
    if not list_ids:
        complete_job(uow, lease, {})
        return None
    # ``record_progress`` raises an error if another worker has taken over the job, so that the
    # batch is rolled back.
    record_progress(uow, lease, done=0)
    locks.lock_lists_shared(uow, *list_ids)
    if not locks.lock_pair(uow, user_id, *list_ids):
        raise TransientError("The person is gone.")
    address = uow.session.scalar(new_address)
    if address is None:
        return after
    actor = Actor(ActorKind.USER, Via.LOGIN, user_id)
    for list_id in list_ids:
        record = changes.find_record(uow, list_id, user_id)
        if record is not None and record.email is not None:
            changes.change_record(uow, record, "edited", actor, email=address)
    return list_ids[-1]
