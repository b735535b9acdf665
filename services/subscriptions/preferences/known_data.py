"""Exports all data about a person that the lists of one owner contain."""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import exists, literal, null, select

from core import clock
from models import (
    AddressOptOut,
    Bounce,
    DeniedEntry,
    EngagementAnswer,
    ListReport,
    MailingList,
    OptOut,
    OptOutKind,
    SenderReport,
    Subscription,
    SubscriptionEvent,
)
from services.paging import PageRequest
from services.subscriptions import member_attributes
from services.subscriptions.consent import evidence
from services.subscriptions.member_attributes import AttributeFormatter
from services.subscriptions.members import opt_out_checks
from services.subscriptions.members.engagement_views import read_view
from services.subscriptions.preferences.visits import Visit
from storage.unit_of_work import UnitOfWork

# The maximum number of entries that are exported per list, counted separately for consent entries
# and history events.
_MAX_ENTRIES_PER_LIST = 1_000
_RECORD_COLUMNS = (
    "status",
    "email_enabled",
    "name",
    "email",
    "type",
    "paid_expiry",
    "source",
    "language",
    "origin",
)
_EVENT_COLUMNS = (
    "created_at",
    "action",
    "actor",
    "via",
    "status_before",
    "status_after",
    "reason",
    "changed",
    "ip",
)
_CONSENT_COLUMNS = (
    "occurred_at",
    "how",
    "ip",
    "url",
    "browser",
    "wording",
    "claimed_by",
    "origin",
    "engagement",
)
_OPT_OUT_COLUMNS = ("created_at", "kind", "source", "reason")
_BOUNCE_COLUMNS = ("bounced_at", "is_hard", "status", "ended_at", "lifted_at")
_SENDER_REPORT_COLUMNS = ("occurred_at", "received_at", "kind", "code", "status", "outcome")

JsonObject = dict[str, Any]


def read_known_data(uow: UnitOfWork, visit: Visit) -> JsonObject:
    query = (
        select(Subscription, MailingList)
        .join(MailingList, MailingList.id == Subscription.list_id)
        .where(Subscription.user_id == visit.person.id, MailingList.user_id == visit.owner_id)
        .order_by(MailingList.title, MailingList.id)
    )
    rows = uow.session.execute(query).all()
    attributes = member_attributes.create_formatter(
        uow, visit.owner_id, [record.tag_ids for record, _ in rows]
    )
    reports = uow.session.execute(
        select(ListReport.created_at, MailingList.title)
        .join(MailingList, MailingList.id == ListReport.list_id)
        .where(ListReport.user_id == visit.person.id, MailingList.user_id == visit.owner_id)
        .order_by(ListReport.id)
    )
    # Export only whether the deny list contains the person's address, because a denied domain
    # concerns many people.
    denied = select(
        exists().where(
            DeniedEntry.user_id == visit.owner_id, DeniedEntry.entry == visit.person.email
        )
    )
    # Export all opt-outs of the person, including opt-outs from lists without a record of the
    # person.
    keyring = uow.settings.keyring
    opt_out_rows = uow.session.execute(
        select(OptOut, MailingList.title)
        .join(MailingList, MailingList.id == OptOut.list_id)
        .where(
            MailingList.user_id == visit.owner_id,
            opt_out_checks.is_opt_out_of(keyring, visit.person),
        )
        .order_by(OptOut.id)
    )
    kind = literal(OptOutKind.LIST.value).label("kind")
    reason = null().label("reason")
    address_opt_out_rows = uow.session.execute(
        select(AddressOptOut.created_at, kind, AddressOptOut.source, reason, MailingList.title)
        .join(MailingList, opt_out_checks.applies_to_list())
        .where(
            AddressOptOut.user_id == visit.owner_id,
            opt_out_checks.is_address_opt_out_of(keyring, visit.person),
        )
        .order_by(MailingList.id)
    )
    # Show refusals to be recorded next to the opt-outs, although they don't affect mail.
    refusal_rows = uow.session.execute(
        select(
            EngagementAnswer.created_at,
            literal("engagement").label("kind"),
            null().label("source"),
            reason,
            MailingList.title,
        )
        .join(MailingList, MailingList.id == EngagementAnswer.list_id)
        .where(
            MailingList.user_id == visit.owner_id,
            EngagementAnswer.user_id == visit.person.id,
            EngagementAnswer.is_allowed.is_(False),
        )
        .order_by(EngagementAnswer.id)
    )
    bounce_rows = uow.session.execute(
        select(Bounce, MailingList.title)
        .join(MailingList, MailingList.id == Bounce.list_id)
        .where(MailingList.user_id == visit.owner_id, Bounce.user_id == visit.person.id)
        .order_by(Bounce.created_at, Bounce.list_id, Bounce.mailing_id)
        .limit(_MAX_ENTRIES_PER_LIST)
    )
    sender_report_rows = uow.session.execute(
        select(SenderReport, MailingList.title)
        .join(MailingList, MailingList.id == SenderReport.list_id)
        .where(MailingList.user_id == visit.owner_id, SenderReport.user_id == visit.person.id)
        .order_by(SenderReport.id)
        .limit(_MAX_ENTRIES_PER_LIST)
    )
    return {
        "made_at": clock.format_timestamp(clock.now()),
        "email": visit.person.email,
        "lists": [
            _export_list(uow, record, mailing_list, attributes) for record, mailing_list in rows
        ],
        "opt_outs": [
            {"list": title, **_export_columns(row, _OPT_OUT_COLUMNS)}
            for row, title in (
                *opt_out_rows,
                *((row, row.title) for row in address_opt_out_rows),
                *((row, row.title) for row in refusal_rows),
            )
        ],
        "bounces": [
            {"list": title, **_export_columns(row, _BOUNCE_COLUMNS)} for row, title in bounce_rows
        ],
        "sender_reports": [
            {"list": title, **_export_columns(row, _SENDER_REPORT_COLUMNS)}
            for row, title in sender_report_rows
        ],
        "reports": [{"list": title, "created_at": _export_value(at)} for at, title in reports],
        "denied": uow.session.scalar(denied),
    }


def _export_list(
    uow: UnitOfWork,
    record: Subscription,
    mailing_list: MailingList,
    all_attributes: AttributeFormatter,
) -> JsonObject:
    attributes = all_attributes.format_record(record)
    consent = evidence.list_evidence(uow, record, PageRequest(_MAX_ENTRIES_PER_LIST)).rows
    event = SubscriptionEvent
    query = select(event).where(event.list_id == record.list_id, event.user_id == record.user_id)
    events = uow.session.scalars(query.order_by(event.id.desc()).limit(_MAX_ENTRIES_PER_LIST))
    return {
        "title": mailing_list.title,
        "slug": mailing_list.slug,
        **_export_columns(record, _RECORD_COLUMNS),
        "fields": attributes["fields"],
        "tags": attributes["tags"],
        "joined_at": _export_value(attributes["joined_at"]),
        **_export_columns(record, ("imported_at", "created_at", "updated_at")),
        **read_view(uow, record)._asdict(),
        "consent": [_export_columns(each, _CONSENT_COLUMNS) for each in consent],
        "history": [_export_columns(each, _EVENT_COLUMNS) for each in events],
    }


def _export_columns(row: object, names: Iterable[str]) -> JsonObject:
    return {name: _export_value(getattr(row, name)) for name in names}


def _export_value(value: Any) -> Any:
    return clock.format_timestamp(value) if hasattr(value, "isoformat") else value
