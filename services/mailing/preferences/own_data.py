"""All that the lists of one owner hold of a person, to be read by that person."""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import or_, select

from core import clock
from core.keyring import Keyring
from models import (
    DeniedEntry,
    ListReport,
    MailingList,
    OptOut,
    Subscription,
    SubscriptionEvent,
)
from services.mailing.attributes import member_attributes
from services.mailing.attributes.member_attributes import ShownAttributes
from services.mailing.consent import member_consent
from services.mailing.preferences.preference_visits import Visit
from services.mailing.subscriptions import opt_outs
from services.paging import PageRequest
from storage.unit_of_work import UnitOfWork

# Of one list; a person who comes and goes all day has more.
MAX_ENTRIES = 1_000

_RECORD = ("status", "email_enabled", "name", "email", "type", "paid_expiry", "source", "language")
_EVENT = (
    *("created_at", "action", "actor", "via", "status_before", "status_after", "reason"),
    *("changed", "ip"),
)
_CONSENT = ("occurred_at", "how", "ip", "url", "browser", "wording", "claimed_by")
_OPT_OUT = ("created_at", "kind", "source")

Known = dict[str, Any]


def of_visit(uow: UnitOfWork, keyring: Keyring, visit: Visit) -> Known:
    """What is known, in values that JSON has; times as texts."""
    query = (
        select(Subscription, MailingList)
        .join(MailingList, MailingList.id == Subscription.list_id)
        .where(Subscription.user_id == visit.person.id, MailingList.user_id == visit.owner_id)
        .order_by(MailingList.title, MailingList.id)
    )
    rows = uow.session.execute(query).tuples().all()
    shown = member_attributes.read(uow, visit.owner_id, [record.tag_ids for record, _ in rows])
    return {
        "made_at": clock.iso(clock.now()),
        "email": visit.person.email,
        "lists": [_of_list(uow, record, found, shown) for record, found in rows],
        "opt_outs": _opt_outs(uow, keyring, visit),
        "reports": _reports(uow, visit),
        "denied": _is_denied(uow, visit),
    }


def _of_list(
    uow: UnitOfWork, record: Subscription, mailing_list: MailingList, shown: ShownAttributes
) -> Known:
    attributes = shown.of_record(record)
    consent = member_consent.page(uow, record, PageRequest(MAX_ENTRIES)).rows
    events = uow.session.scalars(
        select(SubscriptionEvent)
        .where(
            SubscriptionEvent.list_id == record.list_id,
            SubscriptionEvent.user_id == record.user_id,
        )
        .order_by(SubscriptionEvent.id.desc())
        .limit(MAX_ENTRIES)
    )
    return {
        "title": mailing_list.title,
        "slug": mailing_list.slug,
        **_named(record, _RECORD),
        "fields": attributes["fields"],
        "tags": attributes["tags"],
        "joined_at": _plain(attributes["joined_at"]),
        "imported_at": _plain(record.imported_at),
        "created_at": _plain(record.created_at),
        "updated_at": _plain(record.updated_at),
        "consent": [_named(each, _CONSENT) for each in consent],
        "history": [_named(each, _EVENT) for each in events],
    }


def _opt_outs(uow: UnitOfWork, keyring: Keyring, visit: Visit) -> list[Known]:
    """Those of lists without a record too, and of the address before it was erased."""
    digests = opt_outs.address_digests(keyring, visit.person.email)
    query = (
        select(OptOut, MailingList.title)
        .join(MailingList, MailingList.id == OptOut.list_id)
        .where(
            MailingList.user_id == visit.owner_id,
            or_(OptOut.user_id == visit.person.id, OptOut.address_hmac.in_(digests)),
        )
        .order_by(OptOut.id)
    )
    rows = uow.session.execute(query).tuples()
    return [{"list": title, **_named(each, _OPT_OUT)} for each, title in rows]


def _reports(uow: UnitOfWork, visit: Visit) -> list[Known]:
    query = (
        select(ListReport.created_at, MailingList.title)
        .join(MailingList, MailingList.id == ListReport.list_id)
        .where(ListReport.user_id == visit.person.id, MailingList.user_id == visit.owner_id)
        .order_by(ListReport.id)
    )
    rows = uow.session.execute(query).tuples()
    return [{"list": title, "created_at": _plain(at)} for at, title in rows]


def _is_denied(uow: UnitOfWork, visit: Visit) -> bool:
    """Whether the owner keeps the very address off their lists."""
    query = select(DeniedEntry.entry).where(
        DeniedEntry.user_id == visit.owner_id, DeniedEntry.entry == visit.person.email
    )
    return uow.session.scalar(query) is not None


def _named(row: object, names: Iterable[str]) -> Known:
    return {name: _plain(getattr(row, name)) for name in names}


def _plain(value: Any) -> Any:
    return clock.iso(value) if hasattr(value, "isoformat") else value
