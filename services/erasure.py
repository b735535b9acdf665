"""Erasing a person: nothing is left that tells who they were, and their no stays a no."""

from functools import partial

from sqlalchemy import delete, func, select, update

from core.errors import conflict
from core.keyring import Keyring
from models import (
    ApiKey,
    Attachment,
    IdempotencyRecord,
    Job,
    MailedLink,
    MailingList,
    Subscription,
    SubscriptionEvent,
    SubscriptionStatus,
    User,
)
from services import accounts
from services.attachments.files import media_key, original_key
from services.subscriptions import changes, locks, opt_outs
from services.subscriptions.changes import Actor, ActorKind, Via
from storage.unit_of_work import UnitOfWork


def erase(uow: UnitOfWork, keyring: Keyring, email: str) -> User:
    """Blank the person wherever they are kept; raises ``user.not_found``, ``user.owns_lists``.

    Opt-outs stay under an HMAC of the address. Records that others rely on (a list's history, a
    ledger) stay without name, address and origin.
    """
    person = accounts.get_by_email(uow, email)
    _require_no_lists(uow, person)
    _blank_subscriptions(uow, person)
    opt_outs.outlive(uow, opt_outs.signer(keyring), person)
    _forget_what_was_theirs(uow, person)
    person.email = f"erased-{person.id}@erased.invalid"
    person.name = None
    person.password_hash = None
    person.erased_at = func.now()
    uow.session.flush()
    uow.session.refresh(person)
    return person


def _require_no_lists(uow: UnitOfWork, person: User) -> None:
    own = select(MailingList.slug).where(
        MailingList.user_id == person.id, MailingList.archived_at.is_(None)
    )
    slugs = list(uow.session.scalars(own))
    if slugs:
        raise conflict(
            "user.owns_lists", f"Archive or hand over their lists first: {', '.join(slugs)}."
        )


def _blank_subscriptions(uow: UnitOfWork, person: User) -> None:
    records = uow.session.scalars(
        select(Subscription).where(Subscription.user_id == person.id)
    ).all()
    locks.hold(uow, person.id, *(each.list_id for each in records))
    operator = Actor(ActorKind.OPERATOR, Via.COMMAND)
    blank = {"status": SubscriptionStatus.REMOVED, "email_enabled": False}
    for each in records:
        changes.change(uow, each, "erased", operator, **blank, name=None, email=None)
    uow.session.flush()
    uow.session.execute(
        update(SubscriptionEvent)
        .where(SubscriptionEvent.user_id == person.id)
        .values(ip=None, request_id=None)
    )


def _forget_what_was_theirs(uow: UnitOfWork, person: User) -> None:
    attachments = uow.session.scalars(
        delete(Attachment).where(Attachment.user_id == person.id).returning(Attachment)
    )
    for attachment in attachments:
        for stored in (media_key(attachment), original_key(attachment)):
            uow.after_commit(partial(uow.objects.remove, stored))
    for owned in (IdempotencyRecord.caller_id, MailedLink.user_id, Job.user_id, ApiKey.user_id):
        uow.session.execute(delete(owned.class_).where(owned == person.id))
