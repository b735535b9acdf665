"""A person shows their new address to the lists that they are on, when they say so."""

import time

from sqlalchemy import exists, func, select

from core.errors import DomainError, TransientError
from core.lanes import Lane
from core.refusals.people import ADDRESS_UNDOABLE
from core.scopes import Scope
from models import AccountMail, MailedLink, MovedAccount, Subscription, User
from services.access.caller import Caller
from services.access.recent_logins import require_recent_login
from services.jobs import kinds, outbox
from services.jobs import lease as leases
from services.jobs.lease import Lease
from services.mailing.subscriptions import changes, locks
from services.mailing.subscriptions.changes import Actor, ActorKind, Via
from services.people.account_mails import MailKind
from services.people.mailed_tokens import TOKEN_LIFETIMES, Purpose
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

SHOW_ADDRESS = kinds.register(
    kinds.JobKind(
        name="account.show_address",
        lane=Lane.UPKEEP,
        scope=Scope.SUBSCRIPTION_FULL,
        retryable=True,
    )
)
SHOWING_TURN_SECONDS = 4.0
# A batch keeps bulk acts off all these lists.
MAX_LISTS = 20


def can_show(uow: UnitOfWork, user_id: int) -> bool:
    """Whether the person moved to another address, and no change can be undone any more.

    What owners have seen, no undo takes back.
    """
    undoable = exists().where(
        MailedLink.user_id == user_id,
        MailedLink.purpose == Purpose.UNDO_ADDRESS,
        MailedLink.used_at.is_(None),
        MailedLink.expires_at > func.now(),
    )
    # Its link is made when the mail is sent.
    told_soon = exists().where(
        AccountMail.user_id == user_id,
        AccountMail.kind == MailKind.ADDRESS_CHANGED,
        AccountMail.sent_at.is_(None),
        AccountMail.created_at > func.now() - TOKEN_LIFETIMES[Purpose.UNDO_ADDRESS],
    )
    has_moved = exists().where(MovedAccount.user_id == user_id)
    return bool(uow.session.scalar(select(has_moved & ~undoable & ~told_soon)))


def begin(uow: UnitOfWork, caller: Caller, *, request_id: str | None) -> None:
    """Have all lists of the caller show their owners the address that the account has now.

    Raises ``auth.login_again`` and ``address.undoable``.
    """
    require_recent_login(uow, caller)
    if not can_show(uow, caller.user_id):
        raise ADDRESS_UNDOABLE()
    outbox.enqueue(
        uow,
        SHOW_ADDRESS,
        user_id=None,
        on_behalf_of=caller.user_id,
        subject_id=caller.user_id,
        request_id=request_id,
    )


def run(resources: Resources, lease: Lease) -> None:
    """Take one turn. Records that show the address already are left alone."""
    ends_by = time.monotonic() + SHOWING_TURN_SECONDS
    assert lease.subject_id is not None
    after: int | None = 0
    while time.monotonic() < ends_by:
        try:
            with resources.unit_of_work() as uow:
                after = _show_batch(uow, lease, lease.subject_id, after or 0)
        except DomainError as error:
            raise TransientError(error.message) from error
        if after is None:
            return
    with resources.unit_of_work() as uow:
        leases.yield_turn(uow, lease)


def _show_batch(uow: UnitOfWork, lease: Lease, user_id: int, after: int) -> int | None:
    """The last list of the batch; ``None`` once the job has ended."""
    address = select(User.email).where(User.id == user_id).scalar_subquery()
    query = (
        select(Subscription.list_id)
        .where(
            Subscription.user_id == user_id,
            Subscription.list_id > after,
            Subscription.email != address,
        )
        .order_by(Subscription.list_id)
        .limit(MAX_LISTS)
    )
    list_ids = list(uow.session.scalars(query))
    if not list_ids:
        leases.succeed(uow, lease, {})
        return None
    # Fails if another worker has the job now, and takes the batch back.
    leases.progress(uow, lease, done=0)
    locks.share_lists(uow, *list_ids)
    if not locks.lock_pair(uow, user_id, *list_ids):
        raise TransientError("The person is gone.")
    actor = Actor(ActorKind.USER, Via.LOGIN, user_id, request_id=lease.request_id)
    person = uow.session.get_one(User, user_id)
    for each in list_ids:
        record = changes.find(uow, each, user_id)
        if record is not None and record.email is not None:
            changes.change(uow, record, "edited", actor, email=person.email)
    return list_ids[-1]
