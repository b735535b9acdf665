"""A reader's preferences at the lists of one owner: the link, the visit, and the data it shows."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sqlalchemy import exists, func, or_, select

from core import clock
from core.errors import DomainError, FieldProblem
from core.errors.mailing import FIELD_VALUE, LIST_NOT_FOUND, SUBSCRIPTION_NOT_FOUND
from core.errors.people import PREFERENCES_LINK_INVALID, PREFERENCES_LINK_USED, VISIT_OVER
from integrations.mail.port import Mailer
from models import (
    AccountMail,
    DeniedEntry,
    ListReport,
    MailedLink,
    MailingList,
    OptOut,
    Subscription,
    SubscriptionEvent,
    SubscriptionStatus,
    User,
)
from services.accounts import account_mails, accounts, mailed_tokens, unsolicited_mail
from services.accounts.account_mails import MailKind, mail_kind, render
from services.accounts.mailed_tokens import Purpose
from services.jobs.lease import Lease
from services.jobs.outbox import enqueue_job
from services.jobs.transitions import complete_job
from services.paging import PageRequest
from services.subscriptions import consent, fields, lists, member_attributes, page_urls
from services.subscriptions.member_attributes import ShownAttributes
from services.subscriptions.members import changes, members, opt_outs
from services.subscriptions.members.changes import Actor
from services.subscriptions.members.locks import lock_subscription
from services.subscriptions.members.members import OwnSubscription
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork


@dataclass(frozen=True)
class Visit:
    """A person, and the list by which they came: the visit is about its owner's lists."""

    person: User
    mailing_list: MailingList

    @property
    def owner_id(self) -> int:
        return self.mailing_list.user_id


def read_link(uow: UnitOfWork, secret: str) -> MailedLink:
    """The mailed link, which is opened by no look at it.

    Raises ``preferences_link.invalid``, ``preferences_link.used``.
    """
    purpose, invalid = Purpose.OPEN_PREFERENCES, PREFERENCES_LINK_INVALID
    found = mailed_tokens.read(uow, purpose, secret, invalid=invalid)
    if found.used_at is not None:
        raise PREFERENCES_LINK_USED()
    if _person_of(uow, found) is None:
        raise invalid()
    return found


def begin(uow: UnitOfWork, secret: str) -> str:
    """Use the mailed link up; returns the secret of the visit. Raises what ``read_link`` does."""
    opened = read_link(uow, secret)
    mailed_tokens.use(uow, opened, used=PREFERENCES_LINK_USED)
    return mailed_tokens.make(
        uow,
        Purpose.VISIT_PREFERENCES,
        user_id=opened.user_id,
        list_id=opened.list_id,
        email=opened.email,
    )


def read(uow: UnitOfWork, secret: str | None) -> Visit:
    """Raises ``visit.over``."""
    found = _find(uow, secret)
    assert found.list_id is not None
    person = _person_of(uow, found)
    if person is None:
        raise VISIT_OVER()
    return Visit(person, lists.get(uow, found.list_id, archived=True))


def end(uow: UnitOfWork, secret: str | None) -> None:
    """The secret opens nothing any more; one that is over already does no harm."""
    with suppress(DomainError):
        _find(uow, secret).used_at = func.now()


def _person_of(uow: UnitOfWork, found: MailedLink) -> User | None:
    """Return the person, if the mailbox that got the link is theirs to this day."""
    assert found.user_id is not None
    person = accounts.find(uow, found.user_id)
    return person if person is not None and person.email == found.email else None


def _find(uow: UnitOfWork, secret: str | None) -> MailedLink:
    """Raises ``visit.over``."""
    if not secret:
        raise VISIT_OVER()
    found = mailed_tokens.read(uow, Purpose.VISIT_PREFERENCES, secret, invalid=VISIT_OVER)
    if found.used_at is not None:
        raise VISIT_OVER()
    return found


# A trace id is in each mail of a list, and mails are passed on, so that anything beyond that one
# list needs a link that was mailed just now. Only the worker looks up whether the owner's lists
# know the address: neither the answer to a request nor its time tells.


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
    enqueue_job(
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
        complete_job(uow, lease, {"sent": mail is not None})


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


# A page shows no more; the file of what is known has all.
MAX_SHOWN_LISTS = 100
MAX_NAME_CHARACTERS = 200
# A person who left says nothing more to the list.
ANSWERING = (SubscriptionStatus.ACTIVE, SubscriptionStatus.PENDING)


@dataclass(frozen=True)
class OwnList:
    mailing_list: MailingList
    own: OwnSubscription


def lists_of_visit(uow: UnitOfWork, visit: Visit) -> list[OwnList]:
    """The list of the visit first; without those whose owner removed the person."""
    query = (
        select(MailingList)
        .join(Subscription, Subscription.list_id == MailingList.id)
        .where(MailingList.user_id == visit.owner_id, Subscription.user_id == visit.person.id)
        .where(Subscription.status != SubscriptionStatus.REMOVED)
        .order_by(MailingList.id != visit.mailing_list.id, MailingList.title, MailingList.id)
        .limit(MAX_SHOWN_LISTS)
    )
    found = uow.session.scalars(query).all()
    return [OwnList(each, members.read(uow, each, visit.person)) for each in found]


def one(uow: UnitOfWork, visit: Visit, list_id: int) -> tuple[MailingList, Subscription]:
    """Return one of these lists, with the person's record; raises ``list.not_found``."""
    mailing_list = uow.session.get(MailingList, list_id)
    record = changes.find(uow, list_id, visit.person.id)
    is_own = mailing_list is not None and mailing_list.user_id == visit.owner_id
    if mailing_list is None or record is None or not is_own:
        raise LIST_NOT_FOUND()
    return mailing_list, record


def answer(
    uow: UnitOfWork,
    visit: Visit,
    list_id: int,
    actor: Actor,
    *,
    name: str,
    values: Mapping[str, str],
) -> None:
    """Set the name and the public fields that are given; an empty text removes a value.

    Raises ``list.not_found``, ``subscription.not_found``, ``list.busy``, and ``field.value`` for
    the name too.
    """
    mailing_list, _ = one(uow, visit, list_id)
    locked = lock_subscription(uow, mailing_list, visit.person)
    record = None if locked is None else locked.record
    if record is None or record.status not in ANSWERING:
        raise SUBSCRIPTION_NOT_FOUND()
    if len(name) > MAX_NAME_CHARACTERS:
        problem = FieldProblem(
            "body.name", FIELD_VALUE.code, f"has at most {MAX_NAME_CHARACTERS} characters"
        )
        raise FIELD_VALUE(rules=f"body.name: {problem.message}", problems=(problem,))
    public = fields.own(uow, mailing_list.user_id).public()
    after = fields.merged(record.fields, public.read(values, is_text=True))
    changes.change(uow, record, "edited", actor, name=name.strip() or None, fields=after)


# For each list; a person who comes and goes all day has more.
MAX_ENTRIES = 1_000

_RECORD = ("status", "email_enabled", "name", "email", "type", "paid_expiry", "source", "language")
_EVENT = (
    *("created_at", "action", "actor", "via", "status_before", "status_after", "reason"),
    *("changed", "ip"),
)
_CONSENT = ("occurred_at", "how", "ip", "url", "browser", "wording", "claimed_by")
_OPT_OUT = ("created_at", "kind", "source")

Known = dict[str, Any]


def data_of_visit(uow: UnitOfWork, visit: Visit) -> Known:
    """Return what is known, in values that JSON has; times as texts."""
    query = (
        select(Subscription, MailingList)
        .join(MailingList, MailingList.id == Subscription.list_id)
        .where(Subscription.user_id == visit.person.id, MailingList.user_id == visit.owner_id)
        .order_by(MailingList.title, MailingList.id)
    )
    rows = uow.session.execute(query).all()
    shown = member_attributes.read_attributes(
        uow, visit.owner_id, [record.tag_ids for record, _ in rows]
    )
    reports = uow.session.execute(
        select(ListReport.created_at, MailingList.title)
        .join(MailingList, MailingList.id == ListReport.list_id)
        .where(ListReport.user_id == visit.person.id, MailingList.user_id == visit.owner_id)
        .order_by(ListReport.id)
    )
    # The owner keeps the very address off their lists.
    denied = DeniedEntry.user_id == visit.owner_id, DeniedEntry.entry == visit.person.email
    digests = opt_outs.address_digests(uow.settings.keyring, visit.person.email)
    # Also of lists without a record, and of the address before an erasure.
    is_theirs = or_(OptOut.user_id == visit.person.id, OptOut.address_hmac.in_(digests))
    said_no = uow.session.execute(
        select(OptOut, MailingList.title)
        .join(MailingList, MailingList.id == OptOut.list_id)
        .where(MailingList.user_id == visit.owner_id, is_theirs)
        .order_by(OptOut.id)
    )
    return {
        "made_at": clock.iso(clock.now()),
        "email": visit.person.email,
        "lists": [_of_list(uow, record, found, shown) for record, found in rows],
        "opt_outs": [{"list": title, **_named(row, _OPT_OUT)} for row, title in said_no],
        "reports": [{"list": title, "created_at": _plain(at)} for at, title in reports],
        "denied": uow.session.scalar(select(exists().where(*denied))),
    }


def _of_list(
    uow: UnitOfWork, record: Subscription, mailing_list: MailingList, shown: ShownAttributes
) -> Known:
    attributes = shown.of_record(record)
    agreed = consent.page(uow, record, PageRequest(MAX_ENTRIES)).rows
    event = SubscriptionEvent
    own = event.list_id == record.list_id, event.user_id == record.user_id
    newest = select(event).where(*own).order_by(event.id.desc()).limit(MAX_ENTRIES)
    events = uow.session.scalars(newest)
    return {
        "title": mailing_list.title,
        "slug": mailing_list.slug,
        **_named(record, _RECORD),
        "fields": attributes["fields"],
        "tags": attributes["tags"],
        "joined_at": _plain(attributes["joined_at"]),
        **_named(record, ("imported_at", "created_at", "updated_at")),
        "consent": [_named(each, _CONSENT) for each in agreed],
        "history": [_named(each, _EVENT) for each in events],
    }


def _named(row: object, names: Iterable[str]) -> Known:
    return {name: _plain(getattr(row, name)) for name in names}


def _plain(value: Any) -> Any:
    return clock.iso(value) if hasattr(value, "isoformat") else value
