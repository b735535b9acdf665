"""The mails that a subscription causes, sent by durable jobs.

A worker may die after it sent a mail and before it recorded that. The mail is then sent again:
twice rather than never.
"""

import base64
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlencode, urlsplit

from sqlalchemy import func, select, text, update

from core.errors import DomainError
from core.errors.mailing import SUBSCRIPTION_CHANGED, TRACE_INVALID
from core.keyring import Keyring
from core.settings import Settings
from integrations.mail.port import Mail, Mailer
from models import MailingList, Subscription, SubscriptionEvent, SubscriptionStatus, User
from services.accounts import mailed_tokens, unsolicited_mail
from services.accounts.account_mails import mail_kind, render
from services.accounts.mailed_tokens import TOKEN_LIFETIMES, Purpose
from services.jobs import lease as leases
from services.jobs import maintenance, outbox
from services.jobs.kinds import JobKind
from services.jobs.lease import Lease
from services.subscriptions import deny_lists, lists
from services.subscriptions.members import locks, opt_outs
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

# Strangers can have reminders sent, so each counts against the limits of such mail, and a mailbox
# gets one a day over all lists. A limit puts a reminder off for a day, until the first mail's link
# ends. Maintenance orders a reminder and forgets that it was due in one transaction.

REMIND_AFTER = timedelta(hours=24)
ORDER_REMINDERS = maintenance.register(
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
                bounds = unsolicited_mail.of_reminder(
                    uow.settings, source, email=email, list_id=record.list_id
                )
                is_ordered = unsolicited_mail.admit(uow, bounds)
                if not is_ordered:
                    assert record.confirmation_asked_at is not None
                    lifetime = TOKEN_LIFETIMES[Purpose.CONFIRM_SUBSCRIPTION]
                    later = due_at + timedelta(days=1)
                    next_at = later if later < record.confirmation_asked_at + lifetime else None
            _set_next(uow, record, due_at, next_at)
            if is_ordered:
                order(uow, MAIL_REMINDER, record)
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
        or opt_outs.kinds_of(uow, mailing_list.id, person)
        or lists.is_reported(uow, mailing_list, person)
        or deny_lists.denied_of(uow, owner_id, [person.email])
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


def order(uow: UnitOfWork, kind: JobKind, record: Subscription) -> None:
    """Have a mail of this kind sent to the subscriber, by a job that no user may see."""
    outbox.enqueue(
        uow,
        kind,
        user_id=None,
        # A rush to one list delays the mails of that list's owner, and no other mail.
        on_behalf_of=uow.session.get_one(MailingList, record.list_id).user_id,
        subject_id=record.id,
    )


UNSUBSCRIBE_PATH = "/unsubscribe"
CONFIRM_PATH = "/confirm"
REPORT_PATH = "/report"
SUBSCRIBED_PATH = "/subscribed"
SIGN_UP_PATH = "/s/{slug}"
PREFERENCES_PATH = "/preferences"
ASK_PREFERENCES_PATH = "/preferences/ask"
OPEN_PREFERENCES_PATH = "/preferences/open"
ANSWERS_PATH = "/preferences/answers"
OWN_DATA_PATH = "/preferences/data"
OWN_DATA_FILE_PATH = "/preferences/data.json"
ERASE_PATH = "/preferences/erase"
END_VISIT_PATH = "/preferences/end"
REPORT_PAGE_PATH = "/s/{slug}/report"


def unsubscribe_url(settings: Settings, trace_id: str) -> str:
    """The page on which a person leaves a list; by POST, RFC 8058's one click for mail clients."""
    return _url(settings, UNSUBSCRIBE_PATH, trace_id=trace_id)


def confirm_url(settings: Settings, secret: str) -> str:
    """The page that confirms a subscription; ``secret`` is a mailed token."""
    return _url(settings, CONFIRM_PATH, token=secret)


def preferences_url(settings: Settings, secret: str) -> str:
    """The page that opens a person's preferences; ``secret`` is a mailed token."""
    return _url(settings, OPEN_PREFERENCES_PATH, token=secret)


def report_url(settings: Settings, trace_id: str) -> str:
    """The page on which a person reports a list that they did not ask for."""
    return _url(settings, REPORT_PATH, trace_id=trace_id)


def subscribed_url(settings: Settings, list_id: int) -> str:
    """The page that thanks for a sign-up; it acts for no person and is in no mail."""
    return _url(settings, SUBSCRIBED_PATH, list=str(list_id))


def sign_up_url(settings: Settings, slug: str) -> str:
    """The page on which strangers subscribe; for everybody."""
    return settings.pages_base + SIGN_UP_PATH.format(slug=slug)


def ask_preferences_url(settings: Settings, slug: str) -> str:
    """The page that has a link to a person's preferences mailed to their address."""
    return _url(settings, ASK_PREFERENCES_PATH, list=slug)


def submission_url(settings: Settings, list_id: int) -> str:
    """Where a form on any site sends what a stranger wrote."""
    return f"{settings.pages_base}/subscriptions/{list_id}"


def report_page_url(settings: Settings, slug: str) -> str:
    """The page on which anybody reports the list's page."""
    return settings.pages_base + REPORT_PAGE_PATH.format(slug=slug)


def one_click_url(settings: Settings, list_id: int, trace_id: str) -> str:
    """The API's one-click URL: POST only, so that a browser that opens it finds nothing."""
    return _url(settings, f"/subscriptions/{list_id}/delete", trace_id=trace_id)


def list_headers(settings: Settings, mailing_list: MailingList, trace_id: str) -> dict[str, str]:
    """The headers of a list's mail to one person: RFC 2919, RFC 2369 and RFC 8058."""
    host = urlsplit(settings.public_base).hostname
    return {
        "List-Id": f"<{mailing_list.slug}.{host}>",
        "List-Unsubscribe": f"<{unsubscribe_url(settings, trace_id)}>",
        "List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
    }


def _url(settings: Settings, path: str, **query: str) -> str:
    return f"{settings.pages_base}{path}?{urlencode(query)}"


def send_confirmation(resources: Resources, lease: Lease, mailer: Mailer) -> None:
    """Mail a new token, unless the subscription no longer waits for one."""
    _send_token(resources, lease, mailer, is_reminder=False)


def send_reminder(resources: Resources, lease: Lease, mailer: Mailer) -> None:
    """Mail one more token, unless the person may not be reminded any more."""
    _send_token(resources, lease, mailer, is_reminder=True)


MAIL_REMINDER = mail_kind("subscription.mail_reminder", send_reminder)


def _send_token(resources: Resources, lease: Lease, mailer: Mailer, *, is_reminder: bool) -> None:
    mail = None
    with resources.unit_of_work() as uow:
        member = _member(uow, lease, SubscriptionStatus.PENDING)
        if member and not (is_reminder and not is_wanted(uow, resources, member[0])):
            record, mailing_list, person = member
            secret = mailed_tokens.make(
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
    return render(
        "confirm_subscription",
        to=to,
        key=key,
        sender_name=mailing_list.sender_name,
        language=language,
        colour=mailing_list.colour,
        words=None if words is None else f"“{words}”",
        title=unsolicited_mail.quoted(mailing_list.title),
        owner=unsolicited_mail.masked_address(owner.email),
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
        mail = render(
            "welcome",
            to=person.email,
            key=f"job-{lease.job_id}",
            sender_name=mailing_list.sender_name,
            language=record.language,
            headers=list_headers(resources.settings, mailing_list, trace_id),
            title=unsolicited_mail.quoted(mailing_list.title),
            unsubscribe_url=unsubscribe_url(resources.settings, trace_id),
        )
    _send(resources, lease, mailer, mail)


def _trace_id(resources: Resources, lease: Lease, record: Subscription) -> str:
    return make(resources.keyring, Trace(record.list_id, record.user_id, delivery=lease.job_id))


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
        leases.succeed(uow, lease, {"sent": mail is not None})


# A trace id goes into mail to that person and nowhere else, so a request that carries it comes from
# that person. It is written ``1<payload>.<key id>.<mac>``, at most 80 characters of
# ``[A-Za-z0-9_.-]``. The payload is list, user (7 bytes each: ids are below 2**53) and delivery (8
# bytes) in base64url. The MAC is the first 16 bytes of an HMAC-SHA256 of version and payload as
# they are written. A trace id does not expire, because people read mail late. The owner of a list
# may revoke those of the deliveries so far: they still leave the list, and open nothing else.

_PURPOSE = "trace"
_VERSION = "1"
_MAC_BYTES = 16
_ID_BYTES = 7
_DELIVERY_BYTES = 8
MAX_TRACE_ID_CHARACTERS = 80
_NEXT_DELIVERY = text("SELECT nextval(pg_get_serial_sequence('jobs', 'id'))")


@dataclass(frozen=True)
class Trace:
    list_id: int
    user_id: int
    # The delivery in which it was mailed: the id of the job that made the roster or sent the mail,
    # or a number from ``new_delivery``.
    delivery: int


def new_delivery(uow: UnitOfWork) -> int:
    """A number behind those of all deliveries so far."""
    # Jobs and deliveries share their numbers, so that none is a table of its own.
    return int(uow.session.execute(_NEXT_DELIVERY).scalar_one())


def revoke(uow: UnitOfWork, mailing_list: MailingList) -> None:
    """From now on the trace ids that were mailed so far only leave the list."""
    mailing_list.traces_revoked_through = new_delivery(uow)


def is_revoked(mailing_list: MailingList, delivery: int) -> bool:
    last = mailing_list.traces_revoked_through
    return last is not None and delivery <= last


def make(keyring: Keyring, trace: Trace) -> str:
    return trace_id_factory(keyring, trace.list_id, trace.delivery)(trace.user_id)


def trace_id_factory(keyring: Keyring, list_id: int, delivery: int) -> Callable[[int], str]:
    """A function that makes trace ids of one list: a roster may need a million of them."""
    signer = keyring.signer(_PURPOSE, length=_MAC_BYTES)
    before = list_id.to_bytes(_ID_BYTES, "big")
    after = delivery.to_bytes(_DELIVERY_BYTES, "big")

    def make_for(user_id: int) -> str:
        packed = before + user_id.to_bytes(_ID_BYTES, "big") + after
        signed = _VERSION + base64.urlsafe_b64encode(packed).decode().rstrip("=")
        return f"{signed}.{signer.sign(signed.encode())}"

    return make_for


def read(keyring: Keyring, token: str) -> Trace:
    """Raises ``trace.invalid`` unless ``make`` made the token with a key still in the ring."""
    signed, _, signature = token.partition(".")
    if len(token) > MAX_TRACE_ID_CHARACTERS or not token.startswith(_VERSION):
        raise TRACE_INVALID()
    # The signature covers the text, so another spelling of the same bytes is refused too.
    if not keyring.signer(_PURPOSE, length=_MAC_BYTES).verify(signed.encode(), signature):
        raise TRACE_INVALID()
    packed = base64.urlsafe_b64decode(signed.removeprefix(_VERSION) + "==")
    ids = 2 * _ID_BYTES
    return Trace(
        list_id=int.from_bytes(packed[:_ID_BYTES], "big"),
        user_id=int.from_bytes(packed[_ID_BYTES:ids], "big"),
        delivery=int.from_bytes(packed[ids:], "big"),
    )
