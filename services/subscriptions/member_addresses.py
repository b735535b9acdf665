"""Copies a person's new e-mail address from the account to the person's subscriptions.

Owners see a new address only when the person can no longer undo the change of address, because an
undo can't take a shown address back.
"""

from datetime import timedelta

from sqlalchemy import and_, func, select, text

from core.errors import DomainError, TransientError
from core.ids import PersonId
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

# The maximum number of lists in one batch, which is low because no bulk action can run on the lists
# during the batch.
MAX_BATCH_LISTS = 20
# The job starts this long after the undo link has expired, so that a last request with the link can
# finish.
_UNDO_MARGIN = timedelta(minutes=1)
# Selects the remaining time in which the person can undo the change of address. The lifetime of the
# undo link begins when the mail with the link is sent.
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
    uow: UnitOfWork,
    person_id: PersonId,
    *,
    after: timedelta = TOKEN_LIFETIMES[Purpose.UNDO_ADDRESS],
) -> None:
    job = enqueue_job(
        uow, UPDATE_ADDRESS, account_id=None, on_behalf_of=person_id, subject_id=person_id
    )
    job.sends = 0
    job.run_at = func.now() + after + _UNDO_MARGIN
    job.send_after = func.now() + after + _UNDO_MARGIN


def run_address_update(resources: Resources, lease: Lease) -> None:
    assert lease.subject_id is not None
    person_id = PersonId(lease.subject_id)
    values = {
        "user_id": person_id,
        "undo": Purpose.UNDO_ADDRESS,
        "changed": MailKind.ADDRESS_CHANGED,
        "lifetime": TOKEN_LIFETIMES[Purpose.UNDO_ADDRESS],
    }
    with resources.unit_of_work() as uow:
        remaining_time = uow.session.scalar(_SELECT_REMAINING_UNDO_TIME, values)
        if remaining_time is not None and remaining_time > timedelta(0):
            schedule_address_update(uow, person_id, after=remaining_time)
            complete_job(uow, lease, {})
            return
    last_list_id: int | None = 0

    def update_batch(uow: UnitOfWork) -> bool:
        nonlocal last_list_id
        last_list_id = _update_batch(uow, lease, person_id, last_list_id or 0)
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
        permissions=None,
        retryable=True,
        run=run_address_update,
    )
)


def _update_batch(uow: UnitOfWork, lease: Lease, person_id: PersonId, after: int) -> int | None:
    """Return the id of the last list in the batch.

    Complete the job and return ``None`` if no subscription contains an old address.
    """
    # The query finds no address if the person has undone the change of address, or has made a
    # second change.
    is_current = and_(FormerAddress.user_id == User.id, FormerAddress.shown == User.email)
    new_address = select(User.email).where(User.id == person_id, is_current).limit(1)
    query = (
        select(Subscription.list_id)
        .where(
            Subscription.user_id == person_id,
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
    # Call ``record_progress`` before updating subscriptions, because ``record_progress`` raises an
    # error if another worker has taken over the job.
    record_progress(uow, lease, done=0)
    locks.lock_lists_shared(uow, *list_ids)
    if not locks.lock_pair(uow, person_id, *list_ids):
        raise TransientError("The person no longer exists.")
    address = uow.session.scalar(new_address)
    if address is None:
        return after
    actor = Actor(ActorKind.USER, Via.LOGIN, person_id)
    for list_id in list_ids:
        record = changes.find_record(uow, list_id, person_id)
        if record is not None and record.email is not None:
            changes.change_record(uow, record, "edited", actor, email=address)
    return list_ids[-1]
