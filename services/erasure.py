"""The erasure of a person: nothing that identifies them stays, and their opt-outs still hold."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import case, delete, func, or_, select, tuple_, update
from sqlalchemy.orm import InstrumentedAttribute

import models
from core.keyring import Keyring
from core.refusals.people import USER_NOT_FOUND_BY_EMAIL, USER_OWNS_LISTS
from services import removals
from services.mailing.subscriptions import changes, opt_outs
from services.mailing.subscriptions.changes import Actor, ActorKind, Via
from services.media.attachments.files import media_key, original_key
from services.people import email_addresses
from storage.unit_of_work import UnitOfWork


@dataclass(frozen=True)
class ErasureSummary:
    """The erased person, and the number of rows of each kind that were blanked, deleted or kept."""

    user_id: int
    subscriptions: int
    opt_outs_kept: int
    lists: int
    attachments: int
    keys: int
    jobs: int


def erase(uow: UnitOfWork, keyring: Keyring, email: str) -> ErasureSummary:
    """Blank or delete all rows about the person; raises ``user.not_found``, ``user.owns_lists``.

    Opt-outs stay under an HMAC of the address. Records that other people rely on (a list's history,
    the ledger) stay without name, address and origin.
    """
    person = _lock_person(uow, email)
    # Jobs before their subjects, as a worker locks them: no import continues without its job.
    jobs = _delete_owned(uow, models.Job.user_id, person)
    attachments = _delete_attachments(uow, person)
    _remove_bulk_files(uow, person)
    # The payer's URLs and claim token go; the order and the payment stay.
    uow.session.execute(
        update(models.PaymentOrder)
        .where(models.PaymentOrder.user_id == person.id)
        .values(redirect_url=None, payment_url=None, claim_token_hmac=None)
    )
    erased = ErasureSummary(
        user_id=person.id,
        subscriptions=_blank_subscriptions(uow, person),
        opt_outs_kept=opt_outs.keep_for_erasure(uow, keyring, person),
        lists=_blank_lists(uow, person),
        attachments=attachments,
        keys=_delete_owned(uow, models.ApiKey.user_id, person),
        jobs=jobs,
    )
    for own in (models.StorageUse, models.ComposerUse):
        _delete_owned(uow, own.user_id, person)
    _delete_owned(uow, models.IdempotencyRecord.caller_id, person)
    _delete_logins(uow, person)
    _blank_account(uow, person)
    return erased


def _delete_logins(uow: UnitOfWork, person: models.User) -> None:
    """Delete what the person, and programs for them, showed to get in, and the mails about it."""
    for credential in (models.UserSession, models.TotpSecret, models.Passkey, models.RecoveryCode):
        _delete_owned(uow, credential.user_id, person)
    # The grant's codes and tokens go with it.
    _delete_owned(uow, models.OAuthGrant.user_id, person)
    _delete_mails(uow, person)


def _delete_mails(uow: UnitOfWork, person: models.User) -> None:
    """Delete mails about the account and their tokens, recent ones and unsent ones."""
    for kind in (models.MailedLink, models.AccountMail):
        is_about_person = or_(kind.user_id == person.id, kind.email == person.email)
        uow.session.execute(delete(kind).where(is_about_person))
    # Their reports of lists still count.
    own_report = models.ListReport.user_id == person.id
    uow.session.execute(update(models.ListReport).where(own_report).values(user_id=None))


def _lock_person(uow: UnitOfWork, email: str) -> models.User:
    """The person, once no other transaction writes about them; none does until they are erased."""
    # Orders before people, as a transaction locks them that credits an order: neither can wait for
    # the other in a circle.
    is_person = models.User.email == email_addresses.normalise(email)
    orders = (
        select(models.PaymentOrder.id)
        .join(models.User, models.User.id == models.PaymentOrder.user_id)
        .where(is_person)
    )
    uow.session.execute(orders.with_for_update(of=models.PaymentOrder))
    person = uow.session.scalar(select(models.User).where(is_person).with_for_update())
    if person is None:
        raise USER_NOT_FOUND_BY_EMAIL(email=email)
    own = select(models.MailingList.slug).where(
        models.MailingList.user_id == person.id, models.MailingList.archived_at.is_(None)
    )
    slugs = list(uow.session.scalars(own))
    if slugs:
        raise USER_OWNS_LISTS(slugs=", ".join(slugs))
    return person


def _blank_subscriptions(uow: UnitOfWork, person: models.User) -> int:
    records = uow.session.scalars(
        select(models.Subscription).where(models.Subscription.user_id == person.id)
    ).all()
    operator = Actor(ActorKind.OPERATOR, Via.COMMAND)
    blank = {"status": models.SubscriptionStatus.REMOVED, "email_enabled": False}
    for each in records:
        changes.change(uow, each, "erased", operator, **blank, name=None, email=None)
    uow.session.flush()
    # Without these rows an undo of an import can't bring the person's name back.
    imported = (
        select(models.MemberImport.id, models.Subscription.id)
        .join(models.Subscription, models.Subscription.list_id == models.MemberImport.list_id)
        .where(models.Subscription.user_id == person.id)
    )
    changed = tuple_(models.ImportChange.import_id, models.ImportChange.subscription_id)
    uow.session.execute(delete(models.ImportChange).where(changed.in_(imported)))
    # As the owner of a list the person also changed other people's subscriptions, from an address.
    is_about_person = or_(
        models.SubscriptionEvent.user_id == person.id,
        models.SubscriptionEvent.actor_id == person.id,
    )
    uow.session.execute(
        update(models.SubscriptionEvent).where(is_about_person).values(ip=None, request_id=None)
    )
    return len(records)


def _blank_lists(uow: UnitOfWork, person: models.User) -> int:
    """Blank the texts of archived lists; the lists stay, since members may still leave them."""
    words = ("tagline", "description", "avatar_image_url", "favicon_image_url")
    blanked = (
        update(models.MailingList)
        .where(models.MailingList.user_id == person.id)
        .values(
            title="Erased",
            slug=func.concat("erased-", models.MailingList.id),
            **dict.fromkeys(words, None),
        )
    )
    return len(uow.session.execute(blanked.returning(models.MailingList.id)).all())


def _delete_attachments(uow: UnitOfWork, person: models.User) -> int:
    attachments = uow.session.scalars(
        delete(models.Attachment)
        .where(models.Attachment.user_id == person.id)
        .returning(models.Attachment)
    ).all()
    for attachment in attachments:
        removals.forget(uow, media_key(attachment), original_key(attachment))
    return len(attachments)


def _remove_bulk_files(uow: UnitOfWork, person: models.User) -> None:
    """End the person's imports and exports, and remove files with other people's addresses."""
    is_own = models.MemberImport.user_id == person.id
    keys = {"wrapped_key": None, "wrapped_by": None}
    ended = {"filename": None, "description": None, "mapping": None, **keys}
    imports = uow.session.scalars(
        update(models.MemberImport)
        .where(is_own)
        .values(
            **ended,
            status=case(
                (models.MemberImport.status == "running", "cancelled"),
                else_=models.MemberImport.status,
            ),
            finished_at=func.coalesce(models.MemberImport.finished_at, func.now()),
            files_removed_at=func.coalesce(models.MemberImport.files_removed_at, func.now()),
        )
        .returning(models.MemberImport.object_prefix)
    ).all()
    own = select(models.MemberImport.id).where(is_own)
    uow.session.execute(delete(models.ImportChunk).where(models.ImportChunk.import_id.in_(own)))
    exports = uow.session.scalars(
        update(models.MemberExport)
        .where(models.MemberExport.user_id == person.id)
        .values(
            **keys,
            files_removed_at=func.coalesce(models.MemberExport.files_removed_at, func.now()),
        )
        .returning(models.MemberExport.object_prefix)
    ).all()
    removals.forget(uow, *(f"{prefix}/" for prefix in (*imports, *exports)))


def _blank_account(uow: UnitOfWork, person: models.User) -> None:
    """Blank the person, and where the events of their account came from.

    The events stay for their year, as proof of what became of the account: what is left of them are
    ids, a type and a time. The database allows that for people who are erased alone.
    """
    person.email = f"erased-{person.id}@erased.invalid"
    person.name = None
    person.password_hash = None
    person.is_operator = False
    person.erased_at = func.now()
    uow.session.flush()
    event = models.RecordedEvent
    blanked = update(event).where(event.user_id == person.id).values(ip=None, user_agent=None)
    uow.session.execute(blanked)


def _delete_owned(uow: UnitOfWork, owner: InstrumentedAttribute[Any], person: models.User) -> int:
    """Delete the rows that have this person as their ``owner``; returns their number."""
    statement = delete(owner.class_).where(owner == person.id)
    return len(uow.session.execute(statement.returning(1)).all())
