"""The file of everything that the lists of one owner know about a reader."""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import exists, or_, select

from core import clock
from models import (
    DeniedEntry,
    ListReport,
    MailingList,
    OptOut,
    Subscription,
    SubscriptionEvent,
)
from services.paging import PageRequest
from services.subscriptions import member_attributes
from services.subscriptions.consent import evidence
from services.subscriptions.member_attributes import ShownAttributes
from services.subscriptions.members import opt_outs
from services.subscriptions.preferences.visits import Visit
from storage.unit_of_work import UnitOfWork

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
    agreed = evidence.list_evidence(uow, record, PageRequest(MAX_ENTRIES)).rows
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
