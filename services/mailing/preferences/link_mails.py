"""The mail with the link to a reader's preferences at one owner's lists.

A trace id is in each mail of a list, and mails are passed on. So whatever goes beyond that one list
needs a link that was mailed just now. A request does the same work for each address: only the
worker looks up whether the owner's lists know it. So neither the answer nor its time tells.
"""

from sqlalchemy import func, select

from integrations.mail.port import Mailer
from models import AccountMail, MailingList, Subscription, User
from services.jobs import lease as leases
from services.jobs import outbox
from services.jobs.lease import Lease
from services.mailing.subscriptions import mail_urls
from services.people import account_mails, mailed_tokens
from services.people.account_mails import MailKind
from services.people.mail_jobs import mail_kind
from services.people.mail_templates import render
from services.people.mailed_tokens import Purpose
from services.people.unasked_mails import mail_bounds, shown_words
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

MAIL_PREFERENCES = mail_kind("subscription.mail_preferences")


def ask(
    uow: UnitOfWork,
    mailing_list: MailingList,
    email: str,
    *,
    language: str,
    source: bytes | None,
    request_id: str | None,
) -> None:
    """Have the link mailed to this normalised address, if the list's owner knows it.

    Nothing is mailed to an address that got as many as the limit allows.
    """
    kind = MailKind.PREFERENCES
    if account_mails.got_enough(uow, kind, email):
        return
    asked = AccountMail(
        kind=kind,
        email=email,
        list_id=mailing_list.id,
        language=language,
        source_digest=source,
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
        request_id=request_id,
    )


def send(resources: Resources, lease: Lease, mailer: Mailer) -> None:
    mail = None
    with resources.unit_of_work() as uow:
        asked = uow.session.get(AccountMail, lease.subject_id)
        found = None if asked is None else _reader(uow, asked)
        if asked is not None and found is not None and _admitted(uow, resources, asked):
            person, mailing_list, language = found
            secret = mailed_tokens.make(
                uow,
                resources.keyring,
                Purpose.OPEN_PREFERENCES,
                user_id=person.id,
                list_id=mailing_list.id,
            )
            mail = render(
                "preferences",
                language=language or asked.language,
                to=person.email,
                key=f"job-{lease.job_id}",
                sender_name=mailing_list.sender_name,
                title=shown_words.quoted(mailing_list.title),
                url=mail_urls.preferences_url(resources.settings, secret),
            )
    if mail is not None:
        mailer.send(mail)
    with resources.unit_of_work() as uow:
        sent = uow.session.get(AccountMail, lease.subject_id)
        if sent is not None and mail is not None:
            sent.sent_at = func.now()
        leases.succeed(uow, lease, {"sent": mail is not None})


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
        .where(
            Subscription.user_id == person.id,
            MailingList.user_id == mailing_list.user_id,
            # What is left of a record that was erased.
            Subscription.email.is_not(None),
        )
        .order_by(Subscription.list_id != mailing_list.id, Subscription.id)
        .limit(1)
    )
    row = uow.session.execute(query).first()
    return None if row is None else (person, mailing_list, row.language)


def _admitted(uow: UnitOfWork, resources: Resources, asked: AccountMail) -> bool:
    """Count a mail that anybody can ask for, once for all attempts to send it."""
    if asked.admitted_at is not None:
        return True
    settings, keyring = resources.settings, resources.keyring
    bounds = mail_bounds.of(settings, keyring, asked.source_digest, email=asked.email)
    if not mail_bounds.admit(uow, bounds):
        return False
    asked.admitted_at = func.now()
    return True
