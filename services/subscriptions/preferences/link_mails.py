"""Mails the link that opens a reader's preferences."""

from sqlalchemy import func, select

from integrations.mail.port import Mailer
from models import (
    AccountMail,
    MailingList,
    Subscription,
    User,
)
from services.accounts import account_mails, mailed_tokens, unsolicited_mail
from services.accounts.account_mails import MailKind, mail_kind, render
from services.accounts.mailed_tokens import Purpose
from services.jobs import lease as leases
from services.jobs import outbox
from services.jobs.lease import Lease
from services.subscriptions import page_urls
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork


def ask(
    uow: UnitOfWork, mailing_list: MailingList, email: str, *, language: str, source: bytes | None
) -> None:
    """Have the link mailed to this normalised address, if the list's owner knows it.

    Nothing is mailed to an address that got as many as the limit allows.
    """
    kind = MailKind.PREFERENCES
    if account_mails.got_enough(uow, kind, email):
        return
    asked = AccountMail(
        kind=kind, email=email, list_id=mailing_list.id, language=language, source_digest=source
    )
    uow.session.add(asked)
    uow.session.flush()
    outbox.enqueue(
        uow,
        MAIL_PREFERENCES,
        user_id=None,
        # A rush to one list delays the mails of that list's owner, and no other mail.
        on_behalf_of=mailing_list.user_id,
        subject_id=asked.id,
    )


def send(resources: Resources, lease: Lease, mailer: Mailer) -> None:
    mail = None
    with resources.unit_of_work() as uow:
        asked = uow.session.get(AccountMail, lease.subject_id)
        found = None if asked is None else _reader(uow, asked)
        if asked and found and account_mails.admit(uow, asked, asked.email):
            person, mailing_list, language = found
            secret = mailed_tokens.make(
                uow,
                Purpose.OPEN_PREFERENCES,
                user_id=person.id,
                list_id=mailing_list.id,
                email=person.email,
            )
            mail = render(
                "preferences",
                language=language or asked.language,
                to=person.email,
                key=f"job-{lease.job_id}",
                sender_name=mailing_list.sender_name,
                title=unsolicited_mail.quoted(mailing_list.title),
                url=page_urls.preferences_url(resources.settings, secret),
            )
    if mail is not None:
        mailer.send(mail)
    with resources.unit_of_work() as uow:
        sent = uow.session.get(AccountMail, lease.subject_id)
        if sent is not None and mail is not None:
            sent.sent_at = func.now()
        leases.succeed(uow, lease, {"sent": mail is not None})


MAIL_PREFERENCES = mail_kind("subscription.mail_preferences", send)


def _reader(uow: UnitOfWork, asked: AccountMail) -> tuple[User, MailingList, str | None] | None:
    """The person, the list that they asked about, and the language in which they subscribed.

    ``None`` for a person of whom the owner of the list has no record.
    """
    person = uow.session.scalar(select(User).where(User.email == asked.email))
    mailing_list = uow.session.get(MailingList, asked.list_id)
    if person is None or person.erased_at is not None or mailing_list is None:
        return None
    query = (
        select(Subscription.language)
        .join(MailingList, MailingList.id == Subscription.list_id)
        # Without an address it is the rest of a record that was erased.
        .where(Subscription.user_id == person.id, Subscription.email.is_not(None))
        .where(MailingList.user_id == mailing_list.user_id)
        .order_by(Subscription.list_id != mailing_list.id, Subscription.id)
    )
    row = uow.session.execute(query.limit(1)).first()
    return None if row is None else (person, mailing_list, row.language)
