"""The addresses of members who moved, as the owners of their lists see them.

A list's own record keeps the address that its owner knows, until the member says otherwise. No undo
takes back what an owner has seen, so a new address is shown once the change can't be undone.
"""

from datetime import timedelta

from sqlalchemy import func, select, text

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

# A batch keeps bulk actions off all these lists.
MAX_LISTS = 20
# An undo that was asked for at the last moment has ended by then.
_MARGIN = timedelta(minutes=1)


def schedule_address_change(
    uow: UnitOfWork, user_id: int, *, after: timedelta = TOKEN_LIFETIMES[Purpose.UNDO_ADDRESS]
) -> None:
    """Have all lists of the person show their owners the address that the account has now."""
    job = enqueue_job(uow, SHOW_ADDRESS, user_id=None, on_behalf_of=user_id, subject_id=user_id)
    job.sends = 0
    job.run_at = job.send_after = func.now() + after + _MARGIN


def run_address_change(resources: Resources, lease: Lease) -> None:
    """Take one turn. Records that show the address already are left alone."""
    user_id = lease.subject_id
    assert user_id is not None
    undo, changed = Purpose.UNDO_ADDRESS, MailKind.ADDRESS_CHANGED
    values = {"user_id": user_id, "undo": undo, "changed": changed}
    with resources.unit_of_work() as uow:
        left = uow.session.scalar(_UNDONE_WITHIN, {**values, "lifetime": TOKEN_LIFETIMES[undo]})
        if left is not None and left > timedelta(0):
            schedule_address_change(uow, user_id, after=left)
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


# For how long a change may still be undone. A link is made when its mail is sent.
_UNDONE_WITHIN = text("""
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
        run=run_address_change,
    )
)


def _show_batch(uow: UnitOfWork, lease: Lease, user_id: int, after: int) -> int | None:
    """Return the last list of the batch, ``None`` once the job has ended."""
    # Finds nothing after an undo, or after another move.
    said = FormerAddress.user_id == User.id, FormerAddress.shown == User.email
    wanted = select(User.email).where(User.id == user_id, *said).limit(1)
    s = Subscription
    is_behind = s.user_id == user_id, s.list_id > after, s.email != wanted.scalar_subquery()
    query = select(s.list_id).where(*is_behind).order_by(s.list_id).limit(MAX_LISTS)
    list_ids = list(uow.session.scalars(query))
    if not list_ids:
        complete_job(uow, lease, {})
        return None
    # Fails if another worker has the job now, and takes the batch back.
    record_progress(uow, lease, done=0)
    locks.share_lists(uow, *list_ids)
    if not locks.lock_pair(uow, user_id, *list_ids):
        raise TransientError("The person is gone.")
    address = uow.session.scalar(wanted)
    if address is None:
        return after
    actor = Actor(ActorKind.USER, Via.LOGIN, user_id)
    for each in list_ids:
        record = changes.find_record(uow, each, user_id)
        if record is not None and record.email is not None:
            changes.change_record(uow, record, "edited", actor, email=address)
    return list_ids[-1]
