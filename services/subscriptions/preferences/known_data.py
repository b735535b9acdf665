"""The file of everything that the lists of one owner know about a reader."""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import exists, select

from core import clock
from models import DeniedEntry, ListReport, MailingList, OptOut, Subscription, SubscriptionEvent
from services.paging import PageRequest
from services.subscriptions import member_attributes
from services.subscriptions.consent import evidence
from services.subscriptions.member_attributes import ShownAttributes
from services.subscriptions.members import opt_out_checks
from services.subscriptions.preferences.visits import Visit
from storage.unit_of_work import UnitOfWork

# The newest entries per list. A person who often leaves and returns has more.
_MAX_ENTRIES = 1_000
_RECORD = ("status", "email_enabled", "name", "email", "type", "paid_expiry", "source", "language")
_EVENT = (
    *("created_at", "action", "actor", "via", "status_before", "status_after", "reason"),
    *("changed", "ip"),
)
_CONSENT = ("occurred_at", "how", "ip", "url", "browser", "wording", "claimed_by")
_OPT_OUT = ("created_at", "kind", "source")

# A JSON object. Its times are texts.
Known = dict[str, Any]


def read_known_data(uow: UnitOfWork, visit: Visit) -> Known:
    """Return everything that the owner's lists know about the person."""
    query = (
        select(Subscription, MailingList)
        .join(MailingList, MailingList.id == Subscription.list_id)
        .where(Subscription.user_id == visit.person.id, MailingList.user_id == visit.owner_id)
        .order_by(MailingList.title, MailingList.id)
    )
    rows = uow.session.execute(query).all()
    attributes = member_attributes.read_attributes(
        uow, visit.owner_id, [record.tag_ids for record, _ in rows]
    )
    reports = uow.session.execute(
        select(ListReport.created_at, MailingList.title)
        .join(MailingList, MailingList.id == ListReport.list_id)
        .where(ListReport.user_id == visit.person.id, MailingList.user_id == visit.owner_id)
        .order_by(ListReport.id)
    )
    # An entry for the whole domain doesn't count.
    denied = select(
        exists().where(
            DeniedEntry.user_id == visit.owner_id, DeniedEntry.entry == visit.person.email
        )
    )
    # Opt-outs also count without a record on the list, and if they precede an erasure.
    is_of_person = opt_out_checks.is_opt_out_of(uow.settings.keyring, visit.person)
    opt_out_rows = uow.session.execute(
        select(OptOut, MailingList.title)
        .join(MailingList, MailingList.id == OptOut.list_id)
        .where(MailingList.user_id == visit.owner_id, is_of_person)
        .order_by(OptOut.id)
    )
    return {
        "made_at": clock.format_timestamp(clock.now()),
        "email": visit.person.email,
        "lists": [_of_list(uow, record, mailing_list, attributes) for record, mailing_list in rows],
        "opt_outs": [{"list": title, **_named(row, _OPT_OUT)} for row, title in opt_out_rows],
        "reports": [{"list": title, "created_at": _plain(at)} for at, title in reports],
        "denied": uow.session.scalar(denied),
    }


def _of_list(
    uow: UnitOfWork,
    record: Subscription,
    mailing_list: MailingList,
    all_attributes: ShownAttributes,
) -> Known:
    attributes = all_attributes.of_record(record)
    consent = evidence.list_evidence(uow, record, PageRequest(_MAX_ENTRIES)).rows
    event = SubscriptionEvent
    query = select(event).where(event.list_id == record.list_id, event.user_id == record.user_id)
    events = uow.session.scalars(query.order_by(event.id.desc()).limit(_MAX_ENTRIES))
    return {
        "title": mailing_list.title,
        "slug": mailing_list.slug,
        **_named(record, _RECORD),
        "fields": attributes["fields"],
        "tags": attributes["tags"],
        "joined_at": _plain(attributes["joined_at"]),
        **_named(record, ("imported_at", "created_at", "updated_at")),
        "consent": [_named(each, _CONSENT) for each in consent],
        "history": [_named(each, _EVENT) for each in events],
    }


def _named(row: object, names: Iterable[str]) -> Known:
    return {name: _plain(getattr(row, name)) for name in names}


def _plain(value: Any) -> Any:
    return clock.format_timestamp(value) if hasattr(value, "isoformat") else value
