"""Mails people a link to their preferences page.

A mailed link gives access to a person's subscriptions to all lists of one owner. A mail that was
requested without a list contains a link for each owner. A trace id gives access to only one list,
because all mails contain a trace id and people may forward a mail.

A worker looks up the person's address, so that neither the response nor its duration reveals
whether an owner's list contains the address.
"""

from collections.abc import Sequence
from itertools import chain
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

# The maximum number of subscriptions whose lists a mail names.
_MAX_LISTS = 100


def request_link(
    uow: UnitOfWork,
    mailing_list: MailingList | None,
    email: str,
    *,
    language: str,
    source: bytes | None,
) -> None:
    """Enqueue a mail to a normalised address, unless a rate limit has been reached."""
    limit = account_mails.HOURLY_LIMIT
    if account_mails.is_limit_reached(uow, limit, MailKind.PREFERENCES, email):
        return
    mail = AccountMail(
        kind=MailKind.PREFERENCES,
        email=email,
        list_id=None if mailing_list is None else mailing_list.id,
        language=language,
        source_digest=source,
    )
    uow.session.add(mail)
    uow.session.flush()
    enqueue_job(
        uow,
        MAIL_PREFERENCES,
        account_id=None,
        # Enqueue the job on behalf of the list's owner, so that many requests delay only mails from
        # the same owner's lists.
        on_behalf_of=None if mailing_list is None else mailing_list.user_id,
        subject_id=mail.id,
    )


def mail_link(resources: Resources, lease: Lease, mailer: Mailer) -> None:
    mail = None
    with resources.unit_of_work() as uow:
        request = uow.session.get(AccountMail, lease.subject_id)
        recipient = None if request is None else _find_recipient(uow, request)
        if request and recipient and account_mails.admit_stranger_mail(uow, request, request.email):
            first_list, *other_lists = chain.from_iterable(recipient.lists_by_owner)
            header = None if other_lists else branding.read_mail_header(uow, first_list)
            mail = render_mail(
                "preferences",
                language=recipient.language or request.language,
                to=recipient.person.email,
                key=f"job-{lease.job_id}",
                sender_name=None if other_lists else first_list.sender_name,
                header=header,
                headers=delivery_ids.build_delivery_header(
                    resources.keyring,
                    list_id=first_list.id,
                    user_id=recipient.person.id,
                    job_id=lease.job_id,
                ),
                links=[
                    _create_link(uow, recipient.person, each) for each in recipient.lists_by_owner
                ],
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
    """The recipient of a mail, and the lists that the mail names for each owner."""

    person: User
    lists_by_owner: Sequence[Sequence[MailingList]]
    language: str | None


def _create_link(
    uow: UnitOfWork, person: User, mailing_lists: Sequence[MailingList]
) -> dict[str, str]:
    secret = mailed_tokens.create_token(
        uow,
        Purpose.OPEN_PREFERENCES,
        person_id=person.id,
        list_id=mailing_lists[0].id,
        email=person.email,
    )
    titles = [quoted_texts.quote_text(each.title) for each in mailing_lists]
    url = page_urls.preferences_url(uow.settings, secret)
    return {"title": ", ".join(titles), "url": url}


def _find_recipient(uow: UnitOfWork, request: AccountMail) -> _Recipient | None:
    person = uow.session.scalar(select(User).where(User.email == request.email))
    if person is None or person.erased_at is not None:
        return None
    query = (
        select(MailingList, Subscription.language)
        .join(Subscription, Subscription.list_id == MailingList.id)
        # Skip records without an e-mail address, which belong to erased people.
        .where(Subscription.user_id == person.id, Subscription.email.is_not(None))
        .order_by(Subscription.list_id != request.list_id, Subscription.id.desc())
        .limit(_MAX_LISTS)
    )
    requested_list = None
    if request.list_id is not None:
        requested_list = uow.session.get(MailingList, request.list_id)
        if requested_list is None:
            return None
        query = query.where(MailingList.user_id == requested_list.user_id)
    rows = uow.session.execute(query).all()
    if not rows:
        return None
    lists_by_owner: dict[int, list[MailingList]] = {}
    for mailing_list, _ in rows:
        lists_by_owner.setdefault(mailing_list.user_id, []).append(mailing_list)
    if requested_list is not None:
        # Name the requested list, even if the person has joined only other lists of its owner.
        lists_by_owner = {requested_list.user_id: [requested_list]}
    return _Recipient(person, list(lists_by_owner.values()), rows[0].language)
