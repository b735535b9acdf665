"""The mails that a subscription causes, sent by durable jobs.

A worker may die after it sent a mail and before it recorded that. The mail is then sent again:
twice rather than never.
"""

from datetime import datetime, timedelta
from urllib.parse import urlsplit

from sqlalchemy import func, select, update

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
from services.subscriptions import deny_lists, list_reports
from services.subscriptions.members import locks, opt_out_checks, traces
from services.subscriptions.members.traces import Trace
from services.subscriptions.page_urls import confirm_url, report_url, unsubscribe_url
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

# Strangers can have reminders sent, so each counts against the limits of such mail, and a mailbox
# gets one a day over all lists. A limit puts a reminder off for a day, until the first mail's link
# ends. Maintenance orders a reminder and forgets that it was due in one transaction.

REMIND_AFTER = timedelta(hours=24)
ORDER_REMINDERS = register_maintenance(
    "maintenance.remind", every=timedelta(minutes=10), run=lambda resources, _: order_due(resources)
)
_MAX_AT_ONCE = 1_000


def order_due(resources: Resources) -> int:
    """Have those reminders mailed that are due; how many they were."""
    due_at, is_pending = Subscription.remind_at, Subscription.status == SubscriptionStatus.PENDING
    due = select(Subscription.id, due_at).where(is_pending, due_at <= func.now())
    with resources.unit_of_work() as uow:
        found = uow.session.execute(due.order_by(due_at).limit(_MAX_AT_ONCE)).all()
    return sum(_decide(resources, record_id, at) for record_id, at in found if at is not None)


def _decide(resources: Resources, record_id: int, due_at: datetime) -> bool:
    """Order the reminder, put it off for a day, or drop it."""
    try:
        with resources.unit_of_work() as uow:
            record = uow.session.get(Subscription, record_id)
            if record is None:
                return False
            next_at, is_ordered = None, False
            if is_wanted(uow, resources, record):
                request = _request_of(uow, record)
                assert request is not None
                email = uow.session.get_one(User, record.user_id).email
                source = unsolicited_mail.source_digest(resources.keyring, request.ip)
                bounds = unsolicited_mail.choose_reminder_bounds(
                    uow.settings, source, email=email, list_id=record.list_id
                )
                is_ordered = unsolicited_mail.admit_mail(uow, bounds)
                if not is_ordered:
                    assert record.confirmation_asked_at is not None
                    lifetime = TOKEN_LIFETIMES[Purpose.CONFIRM_SUBSCRIPTION]
                    later = due_at + timedelta(days=1)
                    next_at = later if later < record.confirmation_asked_at + lifetime else None
            _set_next(uow, record, due_at, next_at)
            if is_ordered:
                enqueue_mail(uow, MAIL_REMINDER, record)
            return is_ordered
    except DomainError:
        # Another transaction changed the record, or holds it: the next run decides.
        return False


def is_wanted(uow: UnitOfWork, resources: Resources, record: Subscription) -> bool:
    """Return whether the person may still be reminded: of a new sign-up that waits, to which
    neither they, the list's owner nor the operator said no."""
    mailing_list = uow.session.get_one(MailingList, record.list_id)
    person = uow.session.get_one(User, record.user_id)
    if record.status != SubscriptionStatus.PENDING or person.erased_at or mailing_list.archived_at:
        return False
    owner_id = mailing_list.user_id
    return not (
        _request_of(uow, record) is None
        or opt_out_checks.find_opt_outs(uow, mailing_list.id, person)
        or list_reports.is_reported(uow, mailing_list, person)
        or deny_lists.find_denied(uow, owner_id, [person.email])
    )


def _request_of(uow: UnitOfWork, record: Subscription) -> SubscriptionEvent | None:
    """The event of the stranger's request that made the record; ``None`` for a person whom the list
    had before: they may have left, or their owner may have removed them."""
    event = SubscriptionEvent
    own = event.list_id == record.list_id, event.user_id == record.user_id
    query = select(event).where(*own, event.status_before.is_distinct_from(event.status_after))
    newest = uow.session.scalar(query.order_by(event.id.desc()).limit(1))
    is_new = newest is not None and newest.action == "requested" and newest.status_before is None
    return newest if is_new else None


def _set_next(
    uow: UnitOfWork, record: Subscription, due_at: datetime, next_at: datetime | None
) -> None:
    """Compare and set, after the counts are locked, as a request does: two hosts decide once."""
    s = Subscription
    statement = (
        update(s)
        .where(s.id == record.id, s.status == record.status, s.remind_at == due_at)
        # Nothing of the member changed.
        .values(remind_at=next_at, updated_at=s.updated_at)
        .returning(s.id)
        .execution_options(synchronize_session=False)
    )
    with locks.waiting_briefly(uow):
        if uow.session.scalar(statement) is None:
            raise SUBSCRIPTION_CHANGED()


def enqueue_mail(uow: UnitOfWork, kind: JobKind, record: Subscription) -> None:
    """Have a mail of this kind sent to the subscriber, by a job that no user may see."""
    enqueue_job(
        uow,
        kind,
        user_id=None,
        # A rush to one list delays the mails of that list's owner, and no other mail.
        on_behalf_of=uow.session.get_one(MailingList, record.list_id).user_id,
        subject_id=record.id,
    )


def list_headers(settings: Settings, mailing_list: MailingList, trace_id: str) -> dict[str, str]:
    """The headers of a list's mail to one person: RFC 2919, RFC 2369 and RFC 8058."""
    host = urlsplit(settings.public_base).hostname
    return {
        "List-Id": f"<{mailing_list.slug}.{host}>",
        "List-Unsubscribe": f"<{unsubscribe_url(settings, trace_id)}>",
        "List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
    }


def send_confirmation(resources: Resources, lease: Lease, mailer: Mailer) -> None:
    """Mail a new token, unless the subscription no longer waits for one."""
    _send_token(resources, lease, mailer, is_reminder=False)


def send_reminder(resources: Resources, lease: Lease, mailer: Mailer) -> None:
    """Mail one more token, unless the person may not be reminded any more."""
    _send_token(resources, lease, mailer, is_reminder=True)


MAIL_CONFIRMATION = register_mail_kind("subscription.mail_confirmation", send_confirmation)
MAIL_REMINDER = register_mail_kind("subscription.mail_reminder", send_reminder)


def _send_token(resources: Resources, lease: Lease, mailer: Mailer, *, is_reminder: bool) -> None:
    mail = None
    with resources.unit_of_work() as uow:
        member = _member(uow, lease, SubscriptionStatus.PENDING)
        if member and not (is_reminder and not is_wanted(uow, resources, member[0])):
            record, mailing_list, person = member
            secret = mailed_tokens.create_token(
                uow,
                Purpose.CONFIRM_SUBSCRIPTION,
                user_id=person.id,
                list_id=record.list_id,
                submitted=record.submitted,
            )
            owner = uow.session.get_one(User, mailing_list.user_id)
            trace_id = _trace_id(resources, lease, record)
            mail = confirmation_mail(
                mailing_list,
                owner,
                to=person.email,
                key=f"job-{lease.job_id}",
                language=(record.submitted or {}).get("language") or record.language,
                url=confirm_url(resources.settings, secret),
                report_url=report_url(resources.settings, trace_id),
                is_reminder=is_reminder,
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
    is_reminder: bool = False,
) -> Mail:
    """The mail as the owner of the list sees it beforehand, and a subscriber gets it."""
    # A stranger may have it sent, so the owner's words are marked as such.
    words = mailing_list.confirmation_text
    return render_mail(
        "confirm_subscription",
        to=to,
        key=key,
        sender_name=mailing_list.sender_name,
        language=language,
        colour=mailing_list.colour,
        words=None if words is None else f"“{words}”",
        title=quoted_texts.quote_text(mailing_list.title),
        owner=quoted_texts.obfuscate_address(owner.email),
        url=url,
        report_url=report_url,
        is_reminder=is_reminder,
    )


def send_welcome(resources: Resources, lease: Lease, mailer: Mailer) -> None:
    """Tell a new subscriber how to leave, unless they have left already."""
    mail = None
    with resources.unit_of_work() as uow:
        member = _member(uow, lease, SubscriptionStatus.ACTIVE)
    if member and member[0].email_enabled:
        record, mailing_list, person = member
        trace_id = _trace_id(resources, lease, record)
        mail = render_mail(
            "welcome",
            to=person.email,
            key=f"job-{lease.job_id}",
            sender_name=mailing_list.sender_name,
            language=record.language,
            headers=list_headers(resources.settings, mailing_list, trace_id),
            title=quoted_texts.quote_text(mailing_list.title),
            unsubscribe_url=unsubscribe_url(resources.settings, trace_id),
        )
    _send(resources, lease, mailer, mail)


MAIL_WELCOME = register_mail_kind("subscription.mail_welcome", send_welcome)


def _trace_id(resources: Resources, lease: Lease, record: Subscription) -> str:
    trace = Trace(record.list_id, record.user_id, delivery=lease.job_id)
    return traces.make_trace_id(resources.keyring, trace)


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


def _send(resources: Resources, lease: Lease, mailer: Mailer, mail: Mail | None) -> None:
    if mail is not None:
        mailer.send(mail)
    with resources.unit_of_work() as uow:
        complete_job(uow, lease, {"sent": mail is not None})
