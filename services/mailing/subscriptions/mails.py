"""The mails that a subscription causes, sent by durable jobs.

A worker may die after it sent a mail and before it recorded that. The mail is then sent again:
twice rather than never.
"""

from integrations.mail.port import Mail, Mailer
from models import MailingList, Subscription, SubscriptionStatus, User
from services.jobs import lease as leases
from services.jobs.lease import Lease
from services.mailing.subscriptions import mail_urls, trace_ids
from services.mailing.subscriptions.trace_ids import Trace
from services.people import accounts, mailed_tokens
from services.people.mail_templates import render
from services.people.mailed_tokens import Purpose
from services.people.unasked_mails import shown_words
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork


def send_confirmation(resources: Resources, lease: Lease, mailer: Mailer) -> None:
    """Mail a new token, unless the subscription no longer waits for one."""
    mail = None
    with resources.unit_of_work() as uow:
        if member := _member(uow, lease, SubscriptionStatus.PENDING):
            record, mailing_list, person = member
            confirming = Purpose.CONFIRM_SUBSCRIPTION
            secret = mailed_tokens.make(
                uow,
                resources.keyring,
                confirming,
                user_id=person.id,
                list_id=record.list_id,
                submitted=record.submitted,
            )
            owner = uow.session.get_one(User, mailing_list.user_id)
            trace = Trace(mailing_list.id, person.id, delivery=lease.job_id)
            trace_id = trace_ids.make(resources.keyring, trace)
            mail = confirmation_mail(
                mailing_list,
                owner,
                to=_address(record, person),
                key=f"job-{lease.job_id}",
                language=(record.submitted or {}).get("language") or record.language,
                url=mail_urls.confirm_url(resources.settings, secret),
                report_url=mail_urls.report_url(resources.settings, trace_id),
            )
    _send(resources, lease, mailer, mail)


def confirmation_mail(
    mailing_list: MailingList,
    owner: User,
    *,
    to: str,
    key: str,
    language: str | None,
    url: str,
    report_url: str,
) -> Mail:
    """The mail as the owner of the list sees it beforehand, and a subscriber gets it."""
    # A stranger may have it sent, so the owner's words are marked as such.
    words = mailing_list.confirmation_text
    return render(
        "confirm_subscription",
        to=to,
        key=key,
        sender_name=mailing_list.sender_name,
        language=language,
        colour=mailing_list.colour,
        words=None if words is None else f"“{words}”",
        title=shown_words.quoted(mailing_list.title),
        owner=shown_words.masked_address(owner.email),
        url=url,
        report_url=report_url,
    )


def send_welcome(resources: Resources, lease: Lease, mailer: Mailer) -> None:
    """Tell a new subscriber how to leave, unless they have left already."""
    mail = None
    with resources.unit_of_work() as uow:
        member = _member(uow, lease, SubscriptionStatus.ACTIVE)
    if member and member[0].email_enabled:
        record, mailing_list, person = member
        trace = Trace(mailing_list.id, person.id, delivery=lease.job_id)
        trace_id = trace_ids.make(resources.keyring, trace)
        mail = render(
            "welcome",
            to=_address(record, person),
            key=f"job-{lease.job_id}",
            sender_name=mailing_list.sender_name,
            language=record.language,
            headers=mail_urls.list_headers(resources.settings, mailing_list, trace_id),
            title=shown_words.quoted(mailing_list.title),
            unsubscribe_url=mail_urls.unsubscribe_url(resources.settings, trace_id),
        )
    _send(resources, lease, mailer, mail)


def _member(
    uow: UnitOfWork, lease: Lease, status: SubscriptionStatus
) -> tuple[Subscription, MailingList, User] | None:
    """The member of the job, while their status is still the one for which the job was made."""
    record = uow.session.get(Subscription, lease.subject_id)
    if record is None or record.status != status:
        return None
    mailing_list = uow.session.get_one(MailingList, record.list_id)
    if mailing_list.archived_at is not None:
        return None
    person = uow.session.get_one(User, record.user_id)
    return None if person.erased_at is not None else (record, mailing_list, person)


def _address(record: Subscription, person: User) -> str:
    """That of the person's account or, while they are about to be merged, that of the record."""
    return person.email if accounts.has_address(person) else record.email or person.email


def _send(resources: Resources, lease: Lease, mailer: Mailer, mail: Mail | None) -> None:
    if mail is not None:
        mailer.send(mail)
    with resources.unit_of_work() as uow:
        leases.succeed(uow, lease, {"sent": mail is not None})
