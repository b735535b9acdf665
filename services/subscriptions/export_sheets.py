"""The columns and rows of exports, by kind, and how a row is written."""

import codecs
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import orjson
from sqlalchemy import (
    Connection,
    Row,
    Select,
    and_,
    case,
    func,
    not_,
    select,
    text,
    union_all,
)

from core import clock
from models import (
    Erasure,
    MailingList,
    MemberExport,
    MemberTag,
    Subscription,
    SubscriptionStatus,
)
from services.jobs.lease import Lease
from services.subscriptions import fields as attribute_fields
from services.subscriptions import page_urls
from services.subscriptions.consent import evidence
from services.subscriptions.consent.evidence import CONSENT_COLUMNS
from services.subscriptions.fields import as_text
from services.subscriptions.filters import member_filter
from services.subscriptions.filters.member_filter import MemberFilter
from services.subscriptions.members import mails, opt_out_checks, traces
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

# OWASP, "CSV Injection": an apostrophe stands before each sign that begins a formula.
# Spreadsheets of many locales cut a line at semicolons, quoted or not, and some readers at tabs
# and ends of lines, so a cell is guarded after each of these as well. Our reader of imports takes
# the apostrophes away.

# The full-width signs are read as formulas in East Asian locales.
_SIGN = r"[=+\-@\t\r\n＝＋－＠]"  # noqa: RUF001
_START = r"(\A|[;\t\r\n])"
# A spreadsheet may skip blanks and quotes before the sign.
_BARE = re.compile(rf'{_START}(?=[ "]*{_SIGN})')
# For cells that semicolons join: where this finds nothing, no cell has a match.
_ANY_BARE = re.compile(rf'[;\t\r\n][ "]*{_SIGN}')
# A stored value may look guarded. It gets one more apostrophe, so that the reader's loss is none.
_BARE_OR_GUARDED = re.compile(rf"{_START}(?=[ \"']*{_SIGN})")
_GUARDED = re.compile(rf"{_START}'(?=[ \"']*{_SIGN})")
# Few cells have a sign at all, and to find none is quick.
_ANY_SIGN = re.compile(_SIGN)


def guard_foreign_cell(cell: str) -> str:
    """A cell of an uploaded file, which the file's writer may have guarded already."""
    return _BARE.sub(r"\1'", cell)


def guard_foreign_cells(cells: Sequence[str]) -> list[str]:
    """``guard_foreign_cell`` of each, at a fraction of its cost: few cells need a guard."""
    if _ANY_BARE.search(";" + ";".join(cells)) is None:
        return list(cells)
    return [guard_foreign_cell(cell) for cell in cells]


def guard_cell(value: str) -> str:
    """A stored value: the exact inverse of ``bare_cell``, also for a value that looks guarded."""
    return _BARE_OR_GUARDED.sub(r"\1'", value) if _ANY_SIGN.search(value) else value


def bare_cell(cell: str) -> str:
    """The cell as it was before ``guard_cell``."""
    return _GUARDED.sub(r"\1", cell)


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
    """The columns and the query of an exported file.

    Attributes:
        values: of each row, in the order of the columns, as JSON has them. The connection has the
            view in which the rows were read.
        rewritten: the places of the columns that CSV has otherwise: in which a spreadsheet might
            find a formula, and whose values are no text.
    """

    columns: tuple[str, ...]
    query: AnySelect
    values: Callable[[Connection, Sequence[AnyRow]], Iterable[Values]]
    rewritten: tuple[int, ...]


_MEMBERS_COLUMNS = (
    *("email", "name", "status", "tier", "paid_expiry", "email_enabled", "source"),
    *("user_id", "created_at", "joined_at"),
)
_HAS_MAIL = _MEMBERS_COLUMNS.index("email_enabled")
# All but those who were removed, who are no members any more.
_PRESENT_AND_FORMER = tuple(each for each in SubscriptionStatus if each != "removed")


def of_export(uow: UnitOfWork, resources: Resources, lease: Lease, export: MemberExport) -> Sheet:
    """Raises ``segment.tag_deleted``."""
    mailing_list = uow.session.get_one(MailingList, export.list_id)
    wanted = None
    if export.filter is not None:
        wanted = member_filter.read_begun(uow, mailing_list, export.filter)
    if export.kind == ExportKind.DELIVERY:
        return roster(resources, lease, mailing_list, wanted)
    own = attribute_fields.list_fields(uow, mailing_list.user_id)
    tags = select(MemberTag.id, MemberTag.name).where(MemberTag.list_id == mailing_list.id)
    names = {row.id: row.name for row in uow.session.execute(tags)}
    asked = None if export.statuses is None else tuple(map(SubscriptionStatus, export.statuses))
    return members(mailing_list.id, {str(each.id): each.key for each in own}, names, wanted, asked)


def members(
    list_id: int,
    fields: Mapping[str, str],
    tags: Mapping[int, str],
    wanted: MemberFilter | None = None,
    asked: tuple[SubscriptionStatus, ...] | None = None,
) -> Sheet:
    """Members of the list, for its owner: those whom the filter means, and who have the statuses.

    Args:
        fields: keys of the owner's fields, by their ids as text.
        tags: names of the list's tags, by their ids.
    """
    s = Subscription
    status = case((opt_out_checks.HAS_LEFT, SubscriptionStatus.UNSUBSCRIBED.value), else_=s.status)
    has_mail = and_(s.email_enabled, not_(opt_out_checks.HAS_NO_MAIL))
    statuses = (asked or _PRESENT_AND_FORMER) if wanted is None else wanted.statuses(asked)
    # Two indexes begin with the list, and neither has all statuses: without them, the members of a
    # small list are looked for in the whole table.
    table = Subscription.__table__.alias("chosen")
    not_active = [each.value for each in statuses if each is not SubscriptionStatus.ACTIVE]
    of_list = select(table.c.id).where(table.c.list_id == list_id)
    if wanted is not None:
        of_list = of_list.where(wanted.condition(table, asked=asked))
    parts = []
    if SubscriptionStatus.ACTIVE in statuses:
        parts.append(of_list.where(table.c.status == SubscriptionStatus.ACTIVE.value))
    if not_active or not parts:
        parts.append(of_list.where(table.c.status.in_(not_active)))
    shown = union_all(*parts).subquery()
    query = (
        select(s.email, s.name, status.label("status"), s.type, s.paid_expiry, has_mail, s.source)
        .add_columns(s.user_id, s.created_at, func.coalesce(s.joined_at, s.created_at))
        .add_columns(s.tag_ids, s.fields, s.id)
        .join(shown, shown.c.id == s.id)
        .order_by(shown.c.id)
    )
    if SubscriptionStatus.UNSUBSCRIBED not in statuses:
        query = query.where(not_(opt_out_checks.HAS_LEFT))
    if SubscriptionStatus.REMOVED in statuses:
        # Nothing is left to show of an erased person.
        query = query.where(s.email.is_not(None))
    keys = (f"fields.{key}" for key in fields.values())
    columns = (*_MEMBERS_COLUMNS, *CONSENT_COLUMNS, "tags", *keys)
    others = range(len(_MEMBERS_COLUMNS), len(columns))
    none = [None] * len(fields)

    def values(reading: Connection, rows: Sequence[AnyRow]) -> Iterator[Values]:
        agreed = evidence.evidence_by_member(reading, [row.id for row in rows])
        for row in rows:
            email, name, status, tier, expiry, has_mail, source, user_id, made_at, *others = row
            joined_at, tag_ids, own, subscription_id = others
            yield (
                *(
                    email,
                    name,
                    status,
                    tier,
                    expiry and clock.format_timestamp(expiry),
                    has_mail,
                    source,
                ),
                *(user_id, clock.format_timestamp(made_at), clock.format_timestamp(joined_at)),
                *evidence.export_values(agreed.get(subscription_id, ())),
                sorted(tags[each] for each in tag_ids if each in tags) if tag_ids else [],
                *([own.get(each) for each in fields] if own else none),
            )

    return Sheet(columns, query, values, rewritten=(0, 1, _HAS_MAIL, *others))


def roster(
    resources: Resources, lease: Lease, mailing_list: MailingList, wanted: MemberFilter | None
) -> Sheet:
    """The people who get the mail of the list, for its sender: of the chosen ones, if any are."""
    columns = (
        *("email", "name", "user_id", "trace_id", "one_click_url"),
        *("list_id_header", "list_unsubscribe_header", "list_unsubscribe_post_header"),
    )
    s = Subscription
    # No active member with mail has an opt-out, but the sender must not have to rely on that.
    opted_out = opt_out_checks.has_opt_out_on(mailing_list.id)
    # A person is erased from the commit that asks for it. The job that blanks the lists' records
    # ends later.
    erased = select(Erasure.user_id).where(Erasure.finished_at.is_(None))
    is_sent = [s.status == SubscriptionStatus.ACTIVE, s.email_enabled, s.email.is_not(None)]
    is_sent.append(s.user_id.not_in(erased))
    if wanted is not None:
        is_sent.append(wanted.condition(asked=(SubscriptionStatus.ACTIVE,)))
    query = (
        select(s.email, s.name, s.user_id)
        .where(s.list_id == mailing_list.id, *is_sent, ~opted_out)
        .order_by(s.id)
    )
    make = traces.build_trace_id_factory(resources.keyring, mailing_list.id, lease.job_id)
    # A trace id needs no escaping in a URL, so it is appended to the part that all rows share.
    one_click = page_urls.one_click_url(resources.settings, mailing_list.id, "")
    unsubscribe = page_urls.unsubscribe_url(resources.settings, "")
    list_id, _, post = mails.build_list_headers(resources.settings, mailing_list, "").values()

    digests_of = opt_out_checks.create_address_digester(resources.keyring)

    def values(reading: Connection, rows: Sequence[AnyRow]) -> Iterator[Values]:
        people = {"ids": [row.user_id for row in rows]}
        moved = {row.id: row.email for row in reading.execute(_MOVED, people)}
        # People under whose new address an opt-out is kept.
        pairs = ((digests_of(address), user_id) for user_id, address in moved.items())
        whose = {digest: user_id for digests, user_id in pairs for digest in digests}
        opted_out_digests = (
            opt_out_checks.find_opted_out_digests(reading, mailing_list.id, whose) if moved else ()
        )
        refused = {whose[digest] for digest in opted_out_digests}
        for email, name, user_id in rows:
            if user_id not in refused:
                trace_id = make(user_id)
                urls = (one_click + trace_id, list_id, f"<{unsubscribe}{trace_id}>", post)
                yield moved.get(user_id, email), name or "", user_id, trace_id, *urls

    # No address is altered, whatever it begins with.
    return Sheet(columns, query, values, rewritten=(1,))


# The mail of a member who moved goes to the account's address, whichever the list knows.
_MOVED = text("""
SELECT u.id, u.email FROM users AS u
WHERE u.id IN (SELECT user_id FROM former_addresses WHERE user_id = ANY(:ids))
""")


def head(sheet: Sheet, form: ExportFormat, *, bom: bool) -> bytes:
    """Return a CSV's header row, with a byte-order mark if ``bom`` is set; "" for JSON Lines."""
    mark = codecs.BOM_UTF8 if bom else b""
    return mark + _csv([sheet.columns]) if form is ExportFormat.CSV else b""


def lines(sheet: Sheet, form: ExportFormat, found: Iterable[Values]) -> bytes:
    """Return the lines of a file for these values of the sheet."""
    if form is ExportFormat.CSV:
        return _csv(_cells(each, sheet.rewritten) for each in found)
    return b"".join(
        orjson.dumps(dict(zip(sheet.columns, each, strict=True)), option=orjson.OPT_APPEND_NEWLINE)
        for each in found
    )


def _cells(values: Sequence[Any], rewritten: Iterable[int]) -> list[Any]:
    cells = list(values)
    for place in rewritten:
        if (value := cells[place]) is not None and value != "":
            cells[place] = guard_cell(
                ", ".join(map(_tag, value)) if isinstance(value, list) else as_text(value)
            )
    return cells


def _tag(name: str) -> str:
    """A tag in quotes, if it could be read as something else than a word between commas."""
    return '"' + name.replace('"', '""') + '"' if '"' in name or name[0] in "['" else name


def _csv(rows: Iterable[Sequence[Any]]) -> bytes:
    """Return lines of RFC 4180, at a fraction of what ``csv.writer`` takes.

    Quotes keep a cell in one piece wherever the reader cuts at commas or semicolons.
    """
    found = []
    for cells in rows:
        texts = ["" if cell is None else str(cell) for cell in cells]
        line = '","'.join(texts)
        if line.count('"') > 2 * (len(texts) - 1):
            line = '","'.join(text.replace('"', '""') for text in texts)
        found.append(f'"{line}"\r\n')
    return "".join(found).encode()
