"""Shows the new address of a member to the owners of their lists.

A list's own record keeps the address that its owner knows. An owner can't forget what they have
seen. Therefore the new address is shown only after the change can no longer be undone.
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

# A batch blocks bulk actions on all these lists.
MAX_LISTS = 20
# By then, an undo that was requested at the last moment has ended.
_MARGIN = timedelta(minutes=1)


def schedule_address_update(
    uow: UnitOfWork, user_id: int, *, after: timedelta = TOKEN_LIFETIMES[Purpose.UNDO_ADDRESS]
) -> None:
    """Schedule the job that writes the account's address into the records of all lists."""
    job = enqueue_job(uow, SHOW_ADDRESS, user_id=None, on_behalf_of=user_id, subject_id=user_id)
    job.sends = 0
    job.run_at = func.now() + after + _MARGIN
    job.send_after = func.now() + after + _MARGIN


def run_address_update(resources: Resources, lease: Lease) -> None:
    """Run one turn of the job, which skips records that already have the address."""
    user_id = lease.subject_id
    assert user_id is not None
    values = {
        "user_id": user_id,
        "undo": Purpose.UNDO_ADDRESS,
        "changed": MailKind.ADDRESS_CHANGED,
        "lifetime": TOKEN_LIFETIMES[Purpose.UNDO_ADDRESS],
    }
    with resources.unit_of_work() as uow:
        remaining = uow.session.scalar(_UNDO_TIME, values)
        if remaining is not None and remaining > timedelta(0):
            schedule_address_update(uow, user_id, after=remaining)
            complete_job(uow, lease, {})
            return
    reached: int | None = 0

    def show_batch(uow: UnitOfWork) -> bool:
        nonlocal reached
        reached = _show_batch(uow, lease, user_id, reached or 0)
        return reached is None

    try:
        work_in_turns(resources, lease, show_batch)
    except DomainError as error:
        raise TransientError(error.message) from error


# The time for which a change can still be undone. A link is created when its mail is sent.
_UNDO_TIME = text("""
SELECT greatest((
    SELECT max(expires_at) FROM mailed_links
    WHERE user_id = :user_id AND purpose = :undo AND used_at IS NULL
), (
    SELECT now() + :lifetime FROM account_mails
    WHERE user_id = :user_id AND kind = :changed AND sent_at IS NULL LIMIT 1
)) - now()
""")
SHOW_ADDRESS = register_kind(
    JobKind(
        "account.show_address",
        Queue.MAINTENANCE,
        Scope.SUBSCRIPTION_FULL,
        retryable=True,
        run=run_address_update,
    )
)


def _show_batch(uow: UnitOfWork, lease: Lease, user_id: int, after: int) -> int | None:
    """Write the address into one batch of records, and return the id of its last list.

    Returns ``None`` when the job has succeeded.
    """
    # After an undo or another change of the address, the query finds nothing.
    is_shown = and_(FormerAddress.user_id == User.id, FormerAddress.shown == User.email)
    new_address = select(User.email).where(User.id == user_id, is_shown).limit(1)
    s = Subscription
    is_behind = s.user_id == user_id, s.list_id > after, s.email != new_address.scalar_subquery()
    query = select(s.list_id).where(*is_behind).order_by(s.list_id).limit(MAX_LISTS)
    list_ids = list(uow.session.scalars(query))
    if not list_ids:
        complete_job(uow, lease, {})
        return None
    # Raises an error if another worker has the job now. The error undoes the batch.
    record_progress(uow, lease, done=0)
    locks.lock_lists_shared(uow, *list_ids)
    if not locks.lock_pair(uow, user_id, *list_ids):
        raise TransientError("The person is gone.")
    address = uow.session.scalar(new_address)
    if address is None:
        return after
    actor = Actor(ActorKind.USER, Via.LOGIN, user_id)
    for each in list_ids:
        record = changes.find_record(uow, each, user_id)
        if record is not None and record.email is not None:
            changes.change_record(uow, record, "edited", actor, email=address)
    return list_ids[-1]
