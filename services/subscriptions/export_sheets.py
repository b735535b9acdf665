"""Builds the columns and rows of exports, and formats the rows as CSV or JSON Lines."""

import codecs
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple

import orjson
from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    and_,
    case,
    func,
    not_,
    select,
    text,
    true,
    union_all,
)

from core import clock
from models import (
    EngagementMode,
    Erasure,
    MailingList,
    MemberExport,
    MemberTag,
    Subscription,
    SubscriptionStatus,
)
from services.jobs.lease import Lease
from services.subscriptions import fields, page_urls
from services.subscriptions.consent import evidence
from services.subscriptions.consent.evidence import CONSENT_COLUMNS
from services.subscriptions.fields import format_value
from services.subscriptions.filters import member_filter
from services.subscriptions.filters.member_filter import MemberFilter
from services.subscriptions.formula_guard import guard_cell
from services.subscriptions.members import (
    delivery_ids,
    departures,
    mails,
    opt_out_checks,
    traces,
)
from services.subscriptions.sign_up_origins import ORIGIN_NAMES
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

_MEMBERS_COLUMNS = (
    "email",
    "name",
    "status",
    "tier",
    "paid_expiry",
    "email_enabled",
    "source",
    "user_id",
    "created_at",
    "joined_at",
)
_REASON_COLUMNS = ("left_reason", "stated_reason")
_EMAIL_ENABLED_PLACE = _MEMBERS_COLUMNS.index("email_enabled")
# By default, an export of members omits people with the status ``removed``.
_DEFAULT_STATUSES = tuple(each for each in SubscriptionStatus if each != "removed")
# Selects the current account address of each person who has changed their address. A list's record
# of a person may still contain the person's former address.
_SELECT_CHANGED_ADDRESSES = text("""
SELECT u.id, u.email FROM users AS u
WHERE u.id IN (SELECT user_id FROM former_addresses WHERE user_id = ANY(:ids))
""")

# Selects the people whose answer is the one that the list's mode doesn't assume.
_SELECT_ANSWERED = text("""
SELECT user_id FROM engagement_answers
WHERE list_id = :list_id AND user_id = ANY(:ids) AND is_allowed = :is_allowed
""")
_ENGAGEMENT_COLUMN = "engagement"
_FULL = "full"
_NONE = "none"
# Maps each mode to the words of people without and with such an answer.
_ENGAGEMENT_WORDS: Mapping[str, tuple[str, str]] = {
    EngagementMode.OFF: (_NONE, _NONE),
    EngagementMode.CONSENT: (_NONE, _FULL),
    EngagementMode.ALL: (_FULL, _NONE),
}

AnyRow = Row[*tuple[Any, ...]]
AnySelect = Select[*tuple[Any, ...]]
Values = Sequence[Any]


class ExportKind(StrEnum):
    MEMBERS = "members"
    DELIVERY = "delivery"


class ExportFormat(StrEnum):
    CSV = "csv"
    JSONL = "jsonl"


class Sheet(NamedTuple):
    """The columns of an exported file, with the query and the function that produce its rows.

    Attributes:
        convert_rows: must use the connection that runs ``query``, so that all data comes from one
            database snapshot.
        text_places: the indexes of the columns that need an apostrophe in front of formulas.
    """

    columns: tuple[str, ...]
    query: AnySelect
    convert_rows: Callable[[Connection, Sequence[AnyRow]], Iterable[Values]]
    text_places: tuple[int, ...]


def build_sheet(
    uow: UnitOfWork, resources: Resources, lease: Lease, export: MemberExport, *, is_limited: bool
) -> Sheet:
    """Build the file of an export. ``is_limited``: whether trace ids only let people leave."""
    mailing_list = uow.session.get_one(MailingList, export.list_id)
    export_filter = None
    if export.filter is not None:
        export_filter = member_filter.read_for_running_job(
            uow, mailing_list, export.filter, begun_at=export.created_at
        )
    if export.kind == ExportKind.DELIVERY:
        is_chosen: ColumnElement[bool] = true()
        if export_filter is not None:
            is_chosen = export_filter.build_condition(allowed=(SubscriptionStatus.ACTIVE,))
        return build_roster(
            resources,
            mailing_list,
            is_chosen,
            mailing_id=lease.job_id,
            begun_at=export.created_at,
            is_limited=is_limited,
        )
    all_fields = fields.list_fields(uow, mailing_list.user_id)
    field_keys = {str(each.id): each.key for each in all_fields}
    tags = select(MemberTag.id, MemberTag.name).where(MemberTag.list_id == mailing_list.id)
    tag_names = {row.id: row.name for row in uow.session.execute(tags)}
    statuses = None if export.statuses is None else tuple(map(SubscriptionStatus, export.statuses))
    return build_members_sheet(mailing_list.id, field_keys, tag_names, export_filter, statuses)


def build_members_sheet(
    list_id: int,
    field_keys: Mapping[str, str],
    tag_names: Mapping[int, str],
    export_filter: MemberFilter | None = None,
    allowed_statuses: tuple[SubscriptionStatus, ...] | None = None,
) -> Sheet:
    member = Subscription
    records = Subscription.__table__
    status = case(
        (opt_out_checks.HAS_LEFT, SubscriptionStatus.UNSUBSCRIBED.value), else_=member.status
    )
    has_mail = and_(member.email_enabled, not_(opt_out_checks.HAS_NO_MAIL))
    if export_filter is None:
        statuses = allowed_statuses or _DEFAULT_STATUSES
    else:
        statuses = export_filter.list_statuses(allowed_statuses)
    # Select active and inactive members separately, because they have separate indexes. With one
    # query for all statuses, Postgres would use no index and read the records of all lists.
    table = records.alias("chosen")
    inactive_statuses = [each.value for each in statuses if each is not SubscriptionStatus.ACTIVE]
    is_exported = select(table.c.id).where(table.c.list_id == list_id)
    if export_filter is not None:
        is_exported = is_exported.where(
            export_filter.build_condition(table, allowed=allowed_statuses)
        )
    parts = []
    if SubscriptionStatus.ACTIVE in statuses:
        parts.append(is_exported.where(table.c.status == SubscriptionStatus.ACTIVE.value))
    if inactive_statuses or not parts:
        parts.append(is_exported.where(table.c.status.in_(inactive_statuses)))
    exported = union_all(*parts).subquery()
    query = (
        select(
            member.email,
            member.name,
            status.label("status"),
            member.type,
            member.paid_expiry,
            has_mail.label("has_mail"),
            member.source,
            member.user_id,
            member.created_at,
            func.coalesce(member.joined_at, member.created_at).label("joined_at"),
            member.tag_ids,
            member.fields,
            member.origin,
            departures.select_latest(departures.LEFT_REASON, records).label("left_reason"),
            departures.select_latest(departures.STATED_REASON, records).label("stated_reason"),
            member.id,
        )
        .join(exported, exported.c.id == member.id)
        .order_by(exported.c.id)
    )
    if SubscriptionStatus.UNSUBSCRIBED not in statuses:
        query = query.where(not_(opt_out_checks.HAS_LEFT))
    if SubscriptionStatus.REMOVED in statuses:
        # Omit records without an e-mail address, which belong to erased people.
        query = query.where(member.email.is_not(None))
    field_columns = (f"fields.{key}" for key in field_keys.values())
    columns = (
        *_MEMBERS_COLUMNS,
        *CONSENT_COLUMNS,
        "tags",
        *field_columns,
        *ORIGIN_NAMES,
        *_REASON_COLUMNS,
    )
    further_places = range(len(_MEMBERS_COLUMNS), len(columns))
    no_values = [None] * len(field_keys)

    def convert_rows(connection: Connection, rows: Sequence[AnyRow]) -> Iterator[Values]:
        all_evidence = evidence.read_evidence_by_member(connection, [row.id for row in rows])
        for row in rows:
            values = row.fields
            yield (
                row.email,
                row.name,
                row.status,
                row.type,
                row.paid_expiry and clock.format_timestamp(row.paid_expiry),
                row.has_mail,
                row.source,
                row.user_id,
                clock.format_timestamp(row.created_at),
                clock.format_timestamp(row.joined_at),
                *evidence.build_export_values(all_evidence.get(row.id, ())),
                sorted(tag_names[each] for each in row.tag_ids or () if each in tag_names),
                *([values.get(each) for each in field_keys] if values else no_values),
                *map((row.origin or {}).get, ORIGIN_NAMES),
                row.left_reason,
                row.stated_reason,
            )

    text_places = (0, 1, _EMAIL_ENABLED_PLACE, *further_places)
    return Sheet(columns, query, convert_rows, text_places)


def build_roster(
    resources: Resources,
    mailing_list: MailingList,
    is_chosen: ColumnElement[bool],
    *,
    mailing_id: int,
    begun_at: datetime,
    is_limited: bool,
) -> Sheet:
    """Build the roster of a mailing.

    Args:
        is_chosen: an SQL condition for the chosen members.
        begun_at: the time at which the mailing began.
        is_limited: whether trace ids only let people leave.
    """
    columns = (
        "email",
        "name",
        "user_id",
        "trace_id",
        "one_click_url",
        "list_id_header",
        "list_unsubscribe_header",
        "list_unsubscribe_post_header",
        "delivery_id",
        _ENGAGEMENT_COLUMN,
    )
    member = Subscription
    # Omit people who have requested their erasure, because their records are blanked later by a
    # job.
    is_being_erased = select(Erasure.user_id).where(Erasure.finished_at.is_(None))
    conditions = [
        member.list_id == mailing_list.id,
        member.status == SubscriptionStatus.ACTIVE,
        member.email_enabled,
        member.email.is_not(None),
        member.user_id.not_in(is_being_erased),
        # As a precaution, exclude people with an opt-out, although active members with enabled mail
        # should never have an opt-out.
        ~opt_out_checks.has_opt_out_on(mailing_list.id),
        is_chosen,
    ]
    query = select(member.email, member.name, member.user_id).where(*conditions)
    query = query.order_by(member.id)
    day = begun_at.astimezone(UTC).date()
    create_delivery_id = delivery_ids.build_delivery_id_factory(
        resources.keyring, list_id=mailing_list.id, mailing_id=mailing_id, day=day
    )
    create_trace_id = traces.build_trace_id_factory(
        resources.keyring, mailing_list.id, mailing_id, is_limited=is_limited
    )
    # Build each URL by appending a trace id to a fixed prefix, because trace ids need no escaping.
    one_click_prefix = page_urls.one_click_url(resources.settings, mailing_list.id, "")
    unsubscribe_prefix = page_urls.unsubscribe_url(resources.settings, "")
    unanswered_word, answered_word = _ENGAGEMENT_WORDS[mailing_list.engagement]
    answer_values = {
        "list_id": mailing_list.id,
        "is_allowed": mailing_list.engagement == EngagementMode.CONSENT,
    }
    list_id, _, post = mails.build_list_headers(resources.settings, mailing_list, "").values()
    compute_digests = opt_out_checks.create_address_digester(resources.keyring)

    def convert_rows(connection: Connection, rows: Sequence[AnyRow]) -> Iterator[Values]:
        user_ids = {"ids": [row.user_id for row in rows]}
        changed_addresses = {
            row.id: row.email for row in connection.execute(_SELECT_CHANGED_ADDRESSES, user_ids)
        }
        # For people who have changed their address, also check whether an opt-out exists for the
        # new address. Check everybody's address if senders reported opt-outs of addresses, because
        # such an opt-out may be as new as the member.
        checked_addresses = changed_addresses
        if opt_out_checks.has_address_opt_outs(connection, mailing_list.id):
            checked_addresses = {row.user_id: row.email for row in rows} | changed_addresses
        user_id_by_digest = {
            digest: user_id
            for user_id, address in checked_addresses.items()
            for digest in compute_digests(address)
        }
        opted_out_digests = (
            opt_out_checks.find_opted_out_digests(connection, mailing_list.id, user_id_by_digest)
            if checked_addresses
            else ()
        )
        opted_out_ids = {user_id_by_digest[digest] for digest in opted_out_digests}
        # Only the answer that the list's mode doesn't assume makes a difference.
        answered_ids: set[int] = set()
        if unanswered_word != answered_word:
            answered_ids.update(connection.scalars(_SELECT_ANSWERED, user_ids | answer_values))
        for email, name, user_id in rows:
            if user_id not in opted_out_ids:
                trace_id = create_trace_id(user_id)
                yield (
                    changed_addresses.get(user_id, email),
                    name or "",
                    user_id,
                    trace_id,
                    one_click_prefix + trace_id,
                    list_id,
                    f"<{unsubscribe_prefix}{trace_id}>",
                    post,
                    create_delivery_id(user_id),
                    answered_word if user_id in answered_ids else unanswered_word,
                )

    # Don't put apostrophes in front of addresses, because the mailing software uses the addresses
    # unchanged.
    return Sheet(columns, query, convert_rows, text_places=(1,))


def count_measured(sheet: Sheet, rows: Iterable[Values]) -> int:
    """Count the members in rows of a roster whose opens and clicks the list records."""
    place = sheet.columns.index(_ENGAGEMENT_COLUMN)
    return sum(row[place] == _FULL for row in rows)


def format_header(sheet: Sheet, form: ExportFormat, *, bom: bool) -> bytes:
    mark = codecs.BOM_UTF8 if bom else b""
    return mark + _format_csv([sheet.columns]) if form is ExportFormat.CSV else b""


def format_lines(sheet: Sheet, form: ExportFormat, rows: Iterable[Values]) -> bytes:
    if form is ExportFormat.CSV:
        return _format_csv(_format_cells(each, sheet.text_places) for each in rows)
    return b"".join(
        orjson.dumps(dict(zip(sheet.columns, each, strict=True)), option=orjson.OPT_APPEND_NEWLINE)
        for each in rows
    )


def _format_cells(values: Sequence[Any], text_places: Iterable[int]) -> list[Any]:
    cells = list(values)
    for place in text_places:
        if (value := cells[place]) is not None and value != "":
            cells[place] = guard_cell(
                ", ".join(map(_quote_tag, value))
                if isinstance(value, list)
                else format_value(value)
            )
    return cells


def _quote_tag(name: str) -> str:
    """Quote a name that an import of the file would misread."""
    return '"' + name.replace('"', '""') + '"' if '"' in name or name[0] in "['" else name


def _format_csv(rows: Iterable[Sequence[Any]]) -> bytes:
    """Format CSV (RFC 4180) much faster than Python's ``csv.writer``.

    Every cell is quoted, because a cell may contain commas and semicolons.
    """
    lines = []
    for cells in rows:
        texts = ["" if cell is None else str(cell) for cell in cells]
        line = '","'.join(texts)
        if line.count('"') > 2 * (len(texts) - 1):
            line = '","'.join(text.replace('"', '""') for text in texts)
        lines.append(f'"{line}"\r\n')
    return "".join(lines).encode()
