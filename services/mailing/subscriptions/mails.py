"""The mails that a subscription causes, sent by durable jobs.

A worker may die after it sent a mail and before it recorded that. The mail is then sent again:
twice rather than never.
"""

from dataclasses import dataclass

from integrations.mail.port import Mail, Mailer
from models import MailingList, Subscription, SubscriptionStatus, User
from services.jobs import lease as leases
from services.jobs.lease import Lease
from services.mailing.subscriptions import mail_urls, trace_ids
from services.mailing.subscriptions.trace_ids import Trace
from services.people import mailed_tokens
from services.people.mail_templates import render
from services.people.mailed_tokens import Purpose
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork


@dataclass(frozen=True)
class _Member:
    record: Subscription
    mailing_list: MailingList
    person: User


def send_confirmation(resources: Resources, lease: Lease, mailer: Mailer) -> None:
    """Mail a new token, unless the subscription no longer waits for one."""
    with resources.unit_of_work() as uow:
        member = _member(uow, lease, SubscriptionStatus.PENDING)
        if member is None:
            leases.succeed(uow, lease, {"sent": False})
            return
        secret = mailed_tokens.make(
            uow,
            resources.keyring,
            Purpose.CONFIRM_SUBSCRIPTION,
            user_id=member.person.id,
            list_id=member.mailing_list.id,
        )
    mail = render(
        "confirm_subscription",
        to=member.person.email,
        key=f"job-{lease.job_id}",
        title=member.mailing_list.title,
        url=mail_urls.confirm_url(resources.settings, secret),
    )
    _send(resources, lease, mailer, mail)


def send_welcome(resources: Resources, lease: Lease, mailer: Mailer) -> None:
    """Tell a new subscriber how to leave, unless they have left already."""
    with resources.unit_of_work() as uow:
        member = _member(uow, lease, SubscriptionStatus.ACTIVE)
        if member is None or not member.record.email_enabled:
            leases.succeed(uow, lease, {"sent": False})
            return
    trace = Trace(member.mailing_list.id, member.person.id, delivery=lease.job_id)
    trace_id = trace_ids.make(resources.keyring, trace)
    mail = render(
        "welcome",
        to=member.person.email,
        key=f"job-{lease.job_id}",
        headers=mail_urls.list_headers(resources.settings, member.mailing_list, trace_id),
        title=member.mailing_list.title,
        unsubscribe_url=mail_urls.unsubscribe_url(resources.settings, trace_id),
    )
    _send(resources, lease, mailer, mail)


def _member(uow: UnitOfWork, lease: Lease, status: SubscriptionStatus) -> _Member | None:
    """The member of the job, while their status is still the one for which the job was made."""
    record = uow.session.get(Subscription, lease.subject_id)
    if record is None or record.status != status:
        return None
    mailing_list = uow.session.get_one(MailingList, record.list_id)
    if mailing_list.archived_at is not None:
        return None
    return _Member(record, mailing_list, uow.session.get_one(User, record.user_id))


def _send(resources: Resources, lease: Lease, mailer: Mailer, mail: Mail) -> None:
    mailer.send(mail)
    with resources.unit_of_work() as uow:
        leases.succeed(uow, lease, {"sent": True})
