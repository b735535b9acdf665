"""Mails people a link to their preferences page.

A mailed link gives access to a person's subscriptions to all lists of one owner. A trace id gives
access to only one list, because all mails contain a trace id and people may forward a mail.

A worker looks up the person's address, so that neither the response nor its duration reveals
whether an owner's list contains the address.
"""

from typing import NamedTuple

from sqlalchemy import func, select

from integrations.mail.port import Mailer
from models import AccountMail, MailingList, Subscription, User
from services.accounts import account_mails, mailed_tokens, quoted_texts
from services.accounts.account_mails import MailKind
from services.accounts.mail_rendering import register_mail_kind, render_mail
from services.accounts.mailed_tokens import Purpose
from services.jobs.lease import Lease
from services.jobs.outbox import enqueue_job
from services.jobs.transitions import complete_job
from services.subscriptions import branding, page_urls
from services.subscriptions.members import delivery_ids
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork


def request_link(
    uow: UnitOfWork, mailing_list: MailingList, email: str, *, language: str, source: bytes | None
) -> None:
    """Enqueue a mail to a normalised address, unless a rate limit has been reached."""
    limit = account_mails.HOURLY_LIMIT
    if account_mails.is_limit_reached(uow, limit, MailKind.PREFERENCES, email):
        return
    mail = AccountMail(
        kind=MailKind.PREFERENCES,
        email=email,
        list_id=mailing_list.id,
        language=language,
        source_digest=source,
    )
    uow.session.add(mail)
    uow.session.flush()
    enqueue_job(
        uow,
        MAIL_PREFERENCES,
        user_id=None,
        # Enqueue the job on behalf of the list's owner, so that many requests delay only mails from
        # the same owner's lists.
        on_behalf_of=mailing_list.user_id,
        subject_id=mail.id,
    )


def mail_link(resources: Resources, lease: Lease, mailer: Mailer) -> None:
    mail = None
    with resources.unit_of_work() as uow:
        request = uow.session.get(AccountMail, lease.subject_id)
        recipient = None if request is None else _find_recipient(uow, request)
        if request and recipient and account_mails.admit_stranger_mail(uow, request, request.email):
            secret = mailed_tokens.create_token(
                uow,
                Purpose.OPEN_PREFERENCES,
                user_id=recipient.person.id,
                list_id=recipient.mailing_list.id,
                email=recipient.person.email,
            )
            mail = render_mail(
                "preferences",
                language=recipient.language or request.language,
                to=recipient.person.email,
                key=f"job-{lease.job_id}",
                sender_name=recipient.mailing_list.sender_name,
                **branding.read_mail_header(uow, recipient.mailing_list),
                headers=delivery_ids.build_delivery_header(
                    resources.keyring,
                    list_id=recipient.mailing_list.id,
                    user_id=recipient.person.id,
                    job_id=lease.job_id,
                ),
                title=quoted_texts.quote_text(recipient.mailing_list.title),
                url=page_urls.preferences_url(resources.settings, secret),
            )
    if mail is not None:
        mailer.send(mail)
    with resources.unit_of_work() as uow:
        request = uow.session.get(AccountMail, lease.subject_id)
        if request is not None and mail is not None:
            request.sent_at = func.now()
        complete_job(uow, lease, {"sent": mail is not None})


MAIL_PREFERENCES = register_mail_kind("subscription.mail_preferences", mail_link)


class _Recipient(NamedTuple):
    """A recipient, who requested the link on the page of ``mailing_list``."""

    person: User
    mailing_list: MailingList
    language: str | None


def _find_recipient(uow: UnitOfWork, request: AccountMail) -> _Recipient | None:
    person = uow.session.scalar(select(User).where(User.email == request.email))
    mailing_list = uow.session.get(MailingList, request.list_id)
    if person is None or person.erased_at is not None or mailing_list is None:
        return None
    query = (
        select(Subscription.language)
        .join(MailingList, MailingList.id == Subscription.list_id)
        # Skip records without an e-mail address, which belong to erased people.
        .where(Subscription.user_id == person.id, Subscription.email.is_not(None))
        .where(MailingList.user_id == mailing_list.user_id)
        .order_by(Subscription.list_id != mailing_list.id, Subscription.id)
    )
    row = uow.session.execute(query.limit(1)).first()
    return None if row is None else _Recipient(person, mailing_list, row.language)
