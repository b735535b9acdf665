"""Erasing a person: nothing is left that tells who they were, and their no stays a no."""

from dataclasses import dataclass
from functools import partial

from sqlalchemy import Delete, case, delete, func, or_, select, tuple_, update

from core.keyring import Keyring
from core.refusals.people import USER_NOT_FOUND_BY_EMAIL, USER_OWNS_LISTS
from models import (
    AccountMail,
    ApiKey,
    Attachment,
    IdempotencyRecord,
    ImportChange,
    ImportChunk,
    Job,
    MailedLink,
    MailingList,
    MemberExport,
    MemberImport,
    OAuthGrant,
    PaymentOrder,
    Subscription,
    SubscriptionEvent,
    SubscriptionStatus,
    User,
    UserSession,
)
from services.mailing.subscriptions import changes, opt_outs
from services.mailing.subscriptions.changes import Actor, ActorKind, Via
from services.media.attachments.files import media_key, original_key
from services.people import accounts
from storage.parts import remove_all
from storage.unit_of_work import UnitOfWork


@dataclass(frozen=True)
class ErasureSummary:
    """Who was erased, and how much of each kind was blanked or forgotten, or outlives them."""

    user_id: int
    subscriptions: int
    opt_outs_kept: int
    lists: int
    attachments: int
    keys: int
    jobs: int


def erase(uow: UnitOfWork, keyring: Keyring, email: str) -> ErasureSummary:
    """Blank the person wherever they are kept; raises ``user.not_found``, ``user.owns_lists``.

    Opt-outs stay under an HMAC of the address. Records that others rely on (a list's history, a
    ledger) stay without name, address and origin.
    """
    # Orders before people, as whoever credits one: neither waits for the other in a circle.
    _lock_orders(uow, email)
    person = _hold(uow, email)
    _require_no_lists(uow, person)
    attachments = _forget_attachments(uow, person)
    # Jobs before imports, as a worker takes them: none goes on without its job.
    jobs = _forget(uow, delete(Job).where(Job.user_id == person.id))
    _forget_bulk_files(uow, person)
    _blank_orders(uow, person)
    erased = ErasureSummary(
        user_id=person.id,
        subscriptions=_blank_subscriptions(uow, person),
        opt_outs_kept=opt_outs.keep_for_erasure(uow, keyring, person),
        lists=_blank_lists(uow, person),
        attachments=attachments,
        keys=_forget(uow, delete(ApiKey).where(ApiKey.user_id == person.id)),
        jobs=jobs,
    )
    _forget(uow, delete(IdempotencyRecord).where(IdempotencyRecord.caller_id == person.id))
    _forget_ways_in(uow, person)
    person.email = f"erased-{person.id}@erased.invalid"
    person.name = None
    person.password_hash = None
    person.erased_at = func.now()
    return erased


def _lock_orders(uow: UnitOfWork, email: str) -> None:
    theirs = select(PaymentOrder.id).join(User, User.id == PaymentOrder.user_id)
    named = theirs.where(User.email == accounts.normalise_email(email))
    uow.session.execute(named.with_for_update(of=PaymentOrder))


def _forget_ways_in(uow: UnitOfWork, person: User) -> None:
    """Their sessions, what others may do for them, and mail that is on its way to them or was
    lately."""
    _forget(uow, delete(UserSession).where(UserSession.user_id == person.id))
    # With their codes and tokens.
    _forget(uow, delete(OAuthGrant).where(OAuthGrant.user_id == person.id))
    for kind in (MailedLink, AccountMail):
        about_them = or_(kind.user_id == person.id, kind.email == person.email)
        _forget(uow, delete(kind).where(about_them))


def _hold(uow: UnitOfWork, email: str) -> User:
    """Wait for whoever writes about the person, and let nobody do so until they are erased."""
    query = select(User).where(User.email == accounts.normalise_email(email)).with_for_update()
    person = uow.session.scalar(query)
    if person is None:
        raise USER_NOT_FOUND_BY_EMAIL(email=email)
    return person


def _require_no_lists(uow: UnitOfWork, person: User) -> None:
    own = select(MailingList.slug).where(
        MailingList.user_id == person.id, MailingList.archived_at.is_(None)
    )
    slugs = list(uow.session.scalars(own))
    if slugs:
        raise USER_OWNS_LISTS(slugs=", ".join(slugs))


def _blank_subscriptions(uow: UnitOfWork, person: User) -> int:
    records = uow.session.scalars(
        select(Subscription).where(Subscription.user_id == person.id)
    ).all()
    operator = Actor(ActorKind.OPERATOR, Via.COMMAND)
    blank = {"status": SubscriptionStatus.REMOVED, "email_enabled": False}
    for each in records:
        changes.change(uow, each, "erased", operator, **blank, name=None, email=None)
    uow.session.flush()
    _forget_names(uow, person)
    # What they did to others' subscriptions, as the owner of a list, they did from somewhere too.
    about_them = or_(
        SubscriptionEvent.user_id == person.id, SubscriptionEvent.actor_id == person.id
    )
    uow.session.execute(
        update(SubscriptionEvent).where(about_them).values(ip=None, request_id=None)
    )
    return len(records)


def _forget_names(uow: UnitOfWork, person: User) -> None:
    """What imports changed of the person's records, to which no undo gives back a name now."""
    theirs = (
        select(MemberImport.id, Subscription.id)
        .join(Subscription, Subscription.list_id == MemberImport.list_id)
        .where(Subscription.user_id == person.id)
    )
    changed = tuple_(ImportChange.import_id, ImportChange.subscription_id)
    uow.session.execute(delete(ImportChange).where(changed.in_(theirs)))


def _blank_lists(uow: UnitOfWork, person: User) -> int:
    """Archived lists stay for those who still leave them, without what their owner called them."""
    words = ("tagline", "description", "avatar_image_url", "favicon_image_url")
    blanked = (
        update(MailingList)
        .where(MailingList.user_id == person.id)
        .values(
            title="Erased",
            slug=func.concat("erased-", MailingList.id),
            **dict.fromkeys(words, None),
        )
    )
    return len(uow.session.execute(blanked.returning(MailingList.id)).all())


def _blank_orders(uow: UnitOfWork, person: User) -> None:
    """What was ordered and paid stays; where the payer came from, and their token, does not."""
    uow.session.execute(
        update(PaymentOrder)
        .where(PaymentOrder.user_id == person.id)
        .values(redirect_url=None, payment_url=None, claim_token_hmac=None)
    )


def _forget_attachments(uow: UnitOfWork, person: User) -> int:
    attachments = uow.session.scalars(
        delete(Attachment).where(Attachment.user_id == person.id).returning(Attachment)
    ).all()
    for attachment in attachments:
        for stored in (media_key(attachment), original_key(attachment)):
            uow.after_commit(partial(uow.objects.remove, stored))
    return len(attachments)


def _forget_bulk_files(uow: UnitOfWork, person: User) -> None:
    """End their imports and exports, and remove what these hold of others' addresses."""
    theirs = MemberImport.user_id == person.id
    ended = {"filename": None, "description": None, "mapping": None}
    imports = uow.session.scalars(
        update(MemberImport)
        .where(theirs)
        .values(
            **ended,
            status=case((MemberImport.status == "running", "cancelled"), else_=MemberImport.status),
            finished_at=func.coalesce(MemberImport.finished_at, func.now()),
            files_removed_at=func.coalesce(MemberImport.files_removed_at, func.now()),
        )
        .returning(MemberImport.object_prefix)
    ).all()
    own = select(MemberImport.id).where(theirs)
    uow.session.execute(delete(ImportChunk).where(ImportChunk.import_id.in_(own)))
    exports = uow.session.scalars(
        update(MemberExport)
        .where(MemberExport.user_id == person.id)
        .values(files_removed_at=func.coalesce(MemberExport.files_removed_at, func.now()))
        .returning(MemberExport.object_prefix)
    ).all()
    for prefix in (*imports, *exports):
        uow.after_commit(partial(remove_all, uow.objects, prefix))


def _forget(uow: UnitOfWork, statement: Delete) -> int:
    return len(uow.session.execute(statement.returning(1)).all())
