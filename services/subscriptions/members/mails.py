"""Sends confirmation mails, reminders and welcome mails to subscribers.

Each mail is sent by its own job. If a worker crashes after sending a mail but before completing the
job, the mail is sent twice, which is better than losing a mail.

The rate limits for unsolicited mail apply to reminders, because strangers can trigger reminders. An
address gets at most one reminder per day, no matter from how many lists. If a rate limit is
reached, a reminder is postponed by a day, or dropped if the first confirmation link expires
earlier.
"""

from datetime import datetime, timedelta
from urllib.parse import urlsplit

from sqlalchemy import func, select, text, update

from core.errors import DomainError
from core.errors.mailing import SUBSCRIPTION_CHANGED
from core.settings import Settings
from integrations.mail.port import Mail, Mailer
from models import MailingList, Subscription, SubscriptionEvent, SubscriptionStatus, User
from services.accounts import mailed_tokens, quoted_texts, unsolicited_mail
from services.accounts.mail_rendering import register_mail_kind, render_mail
from services.accounts.mailed_tokens import TOKEN_LIFETIMES, Purpose
from services.jobs.kinds import JobKind
from services.jobs.lease import Lease
from services.jobs.maintenance import register_maintenance
from services.jobs.outbox import enqueue_job
from services.jobs.transitions import complete_job
from services.subscriptions import branding, deny_lists, list_reports, redirects
from services.subscriptions.members import (
    delivery_ids,
    email_offs,
    locks,
    opt_out_checks,
    traces,
)
from services.subscriptions.members.traces import Trace
from services.subscriptions.page_urls import confirm_url, report_url, unsubscribe_url
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

REMINDER_DELAY = timedelta(hours=24)
ENQUEUE_REMINDERS = register_maintenance(
    "maintenance.remind",
    every=timedelta(minutes=10),
    run=lambda resources, _: enqueue_due_reminders(resources),
)
_MAX_REMINDERS_PER_RUN = 1_000
_FORGET_SUBMITTED = text("""
UPDATE subscriptions SET submitted = NULL
WHERE id = :id AND status = 'active' AND submitted IS NOT NULL
""")


def enqueue_due_reminders(resources: Resources) -> int:
    due_at = Subscription.remind_at
    query = (
        select(Subscription.id, due_at)
        .where(Subscription.status == SubscriptionStatus.PENDING, due_at <= func.now())
        .order_by(due_at)
        .limit(_MAX_REMINDERS_PER_RUN)
    )
    with resources.unit_of_work() as uow:
        rows = uow.session.execute(query).all()
    return sum(
        _enqueue_or_postpone(resources, record_id, at) for record_id, at in rows if at is not None
    )


def _enqueue_or_postpone(resources: Resources, record_id: int, due_at: datetime) -> bool:
    """Return whether the reminder was enqueued.

    The same transaction clears ``remind_at``, so that no reminder is sent twice.
    """
    try:
        with resources.unit_of_work() as uow:
            record = uow.session.get(Subscription, record_id)
            if record is None:
                return False
            next_at = None
            is_admitted = False
            if may_remind(uow, resources, record):
                request = _find_request_event(uow, record)
                assert request is not None
                email = uow.session.get_one(User, record.user_id).email
                source = unsolicited_mail.source_digest(resources.keyring, request.ip)
                bounds = unsolicited_mail.choose_reminder_bounds(
                    uow.settings, source, email=email, list_id=record.list_id
                )
                is_admitted = unsolicited_mail.admit_mail(uow, bounds)
                if not is_admitted:
                    assert record.confirmation_asked_at is not None
                    lifetime = TOKEN_LIFETIMES[Purpose.CONFIRM_SUBSCRIPTION]
                    later = due_at + timedelta(days=1)
                    next_at = later if later < record.confirmation_asked_at + lifetime else None
            _set_reminder_time(uow, record, due_at, next_at)
            if is_admitted:
                enqueue_mail(uow, MAIL_REMINDER, record)
            return is_admitted
    except DomainError:
        # A concurrent transaction has changed or locked the subscription. The next maintenance run
        # tries to send the reminder again.
        return False


def may_remind(uow: UnitOfWork, resources: Resources, record: Subscription) -> bool:
    mailing_list = uow.session.get_one(MailingList, record.list_id)
    person = uow.session.get_one(User, record.user_id)
    if record.status != SubscriptionStatus.PENDING or person.erased_at or mailing_list.archived_at:
        return False
    owner_id = mailing_list.user_id
    return not (
        _find_request_event(uow, record) is None
        or opt_out_checks.find_opt_outs(uow, mailing_list.id, person)
        or list_reports.is_reported(uow, mailing_list, person)
        or deny_lists.find_denied(uow, owner_id, [person.email])
    )


def _find_request_event(uow: UnitOfWork, record: Subscription) -> SubscriptionEvent | None:
    """Return the sign-up that created the subscription.

    Ignore older subscriptions, because the person may have unsubscribed in the past.
    """
    event = SubscriptionEvent
    query = (
        select(event)
        .where(
            event.list_id == record.list_id,
            event.user_id == record.user_id,
            event.status_before.is_distinct_from(event.status_after),
        )
        .order_by(event.id.desc())
        .limit(1)
    )
    newest = uow.session.scalar(query)
    is_new = newest is not None and newest.action == "requested" and newest.status_before is None
    return newest if is_new else None


def _set_reminder_time(
    uow: UnitOfWork, record: Subscription, due_at: datetime, next_at: datetime | None
) -> None:
    """Set the time of the next reminder.

    Raises ``subscription.changed`` after a concurrent change, so that two workers can't send the
    same reminder. To avoid deadlocks with sign-ups, callers must first call ``admit_mail``, which
    locks the rate limits.
    """
    member = Subscription
    statement = (
        update(member)
        .where(member.id == record.id, member.status == record.status, member.remind_at == due_at)
        # Don't change ``updated_at``, because the list's owner doesn't see the time of the
        # reminder.
        .values(remind_at=next_at, updated_at=member.updated_at)
        .returning(member.id)
        .execution_options(synchronize_session=False)
    )
    with locks.limit_lock_waits(uow):
        if uow.session.scalar(statement) is None:
            raise SUBSCRIPTION_CHANGED()


def enqueue_mail(uow: UnitOfWork, kind: JobKind, record: Subscription) -> None:
    """Enqueue a job that belongs to no user, so that no user sees the job."""
    enqueue_job(
        uow,
        kind,
        account_id=None,
        # Enqueue the job on behalf of the list's owner, so that many sign-ups delay only mails from
        # the same owner's lists.
        on_behalf_of=uow.session.get_one(MailingList, record.list_id).user_id,
        subject_id=record.id,
    )


def build_list_headers(
    settings: Settings, mailing_list: MailingList, trace_id: str
) -> dict[str, str]:
    """Return the list headers of RFC 2919, RFC 2369 and RFC 8058."""
    host = urlsplit(settings.public_base).hostname
    return {
        "List-Id": f"<{mailing_list.slug}.{host}>",
        "List-Unsubscribe": f"<{unsubscribe_url(settings, trace_id)}>",
        "List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
    }


def send_confirmation(resources: Resources, lease: Lease, mailer: Mailer) -> None:
    """Mail a link to a pending person, or to a member whose mail a bounce turned off."""
    _send_token(resources, lease, mailer, is_reminder=False)


def send_reminder(resources: Resources, lease: Lease, mailer: Mailer) -> None:
    _send_token(resources, lease, mailer, is_reminder=True)


MAIL_CONFIRMATION = register_mail_kind("subscription.mail_confirmation", send_confirmation)
MAIL_REMINDER = register_mail_kind("subscription.mail_reminder", send_reminder)


def _send_token(resources: Resources, lease: Lease, mailer: Mailer, *, is_reminder: bool) -> None:
    mail = None
    with resources.unit_of_work() as uow:
        statuses = SubscriptionStatus.PENDING, SubscriptionStatus.ACTIVE
        member = _find_recipient(uow, lease, *statuses)
        if member and _may_confirm(uow, resources, member[0], is_reminder=is_reminder):
            record, mailing_list, person = member
            secret = mailed_tokens.create_token(
                uow,
                Purpose.CONFIRM_SUBSCRIPTION,
                person_id=person.id,
                list_id=record.list_id,
                submitted=record.submitted,
            )
            owner = uow.session.get_one(User, mailing_list.user_id)
            trace_id = _create_trace_id(resources, lease, record)
            mail = render_confirmation_mail(
                uow,
                mailing_list,
                owner,
                to=person.email,
                key=f"job-{lease.job_id}",
                language=(record.submitted or {}).get("language") or record.language,
                url=confirm_url(resources.settings, secret),
                report_url=report_url(resources.settings, trace_id),
                is_reminder=is_reminder,
                headers=_build_delivery_header(resources, lease, record),
            )
    _send_and_complete(resources, lease, mailer, mail, has_submitted=True)


def _may_confirm(
    uow: UnitOfWork, resources: Resources, record: Subscription, *, is_reminder: bool
) -> bool:
    if is_reminder:
        return may_remind(uow, resources, record)
    is_pending = record.status == SubscriptionStatus.PENDING
    return is_pending or email_offs.find_bounce(uow, record) is not None


def render_confirmation_mail(
    uow: UnitOfWork,
    mailing_list: MailingList,
    owner: User,
    *,
    to: str,
    key: str,
    language: str | None,
    url: str,
    report_url: str,
    is_reminder: bool = False,
    headers: dict[str, str] | None = None,
) -> Mail:
    # A stranger may have signed up the recipient's address. The confirmation mail therefore puts
    # the text of the list's owner into quotation marks, and omits the logo, which could contain any
    # text.
    words = mailing_list.confirmation_text
    header = branding.read_mail_header(uow, mailing_list) | {"logo_url": None}
    return render_mail(
        "confirm_subscription",
        to=to,
        key=key,
        sender_name=mailing_list.sender_name,
        language=language,
        headers=headers,
        **header,
        words=None if words is None else f"“{words}”",
        title=quoted_texts.quote_text(mailing_list.title),
        owner=quoted_texts.obfuscate_address(owner.email),
        url=url,
        report_url=report_url,
        is_reminder=is_reminder,
    )


def send_welcome(resources: Resources, lease: Lease, mailer: Mailer) -> None:
    mail = None
    with resources.unit_of_work() as uow:
        member = _find_recipient(uow, lease, SubscriptionStatus.ACTIVE)
        if member and member[0].email_enabled:
            record, mailing_list, person = member
            trace_id = _create_trace_id(resources, lease, record)
            site_url = redirects.find_site(mailing_list)
            mail = render_mail(
                "welcome",
                to=person.email,
                key=f"job-{lease.job_id}",
                sender_name=mailing_list.sender_name,
                language=record.language,
                headers={
                    **build_list_headers(resources.settings, mailing_list, trace_id),
                    **_build_delivery_header(resources, lease, record),
                },
                **branding.read_mail_header(uow, mailing_list),
                title=quoted_texts.quote_text(mailing_list.title),
                unsubscribe_url=unsubscribe_url(resources.settings, trace_id),
                owner_text=mailing_list.thanks_text,
                site_url=site_url,
                site_host=site_url and (urlsplit(site_url).hostname or "").removeprefix("www."),
            )
    _send_and_complete(resources, lease, mailer, mail)


MAIL_WELCOME = register_mail_kind("subscription.mail_welcome", send_welcome)


def _create_trace_id(resources: Resources, lease: Lease, record: Subscription) -> str:
    trace = Trace(record.list_id, record.user_id, delivery=lease.job_id)
    return traces.create_trace_id(resources.keyring, trace)


def _build_delivery_header(
    resources: Resources, lease: Lease, record: Subscription
) -> dict[str, str]:
    return delivery_ids.build_delivery_header(
        resources.keyring, list_id=record.list_id, user_id=record.user_id, job_id=lease.job_id
    )


def _find_recipient(
    uow: UnitOfWork, lease: Lease, *statuses: SubscriptionStatus
) -> tuple[Subscription, MailingList, User] | None:
    record = uow.session.get(Subscription, lease.subject_id)
    if record is None or record.status not in statuses:
        return None
    mailing_list = uow.session.get_one(MailingList, record.list_id)
    if mailing_list.archived_at is not None:
        return None
    person = uow.session.get_one(User, record.user_id)
    return None if person.erased_at is not None else (record, mailing_list, person)


def _send_and_complete(
    resources: Resources,
    lease: Lease,
    mailer: Mailer,
    mail: Mail | None,
    *,
    has_submitted: bool = False,
) -> None:
    """Send a mail, if there is one, and complete the job.

    ``has_submitted``: whether to delete the values from the sign-up form if the member is active.
    """
    if mail is not None:
        mailer.send(mail)
    with resources.unit_of_work() as uow:
        complete_job(uow, lease, {"sent": mail is not None})
        if has_submitted:
            uow.session.execute(_FORGET_SUBMITTED, {"id": lease.subject_id})
