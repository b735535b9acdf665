"""Reads pages of a list's members for the list's owner.

Compiled queries are cached, because SQLAlchemy takes longer to compile a query than Postgres takes
to run it. Queries return plain rows instead of model objects, because a page may contain a thousand
members.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import orjson
from sqlalchemy import (
    ARRAY,
    BigInteger,
    BindParameter,
    ColumnElement,
    Text,
    and_,
    any_,
    bindparam,
    case,
    cast,
    func,
    literal,
    literal_column,
    not_,
    or_,
    select,
    true,
)
from sqlalchemy.dialects.postgresql import JSONB

from core import ids
from core.errors import DomainError
from core.languages.shown_lines import strip_invisible
from models import (
    MailingList,
    MemberField,
    Subscription,
    SubscriptionStatus,
    Tier,
    User,
    active_count,
)
from services import paging
from services.access.caller import Caller
from services.accounts import email_addresses
from services.paging import PageOfRows, PageRequest
from services.subscriptions import lists, tags
from services.subscriptions.fields import OwnFields
from services.subscriptions.member_attributes import AttributeFormatter
from services.subscriptions.members.changes import Via
from services.subscriptions.members.email_offs import (
    EmailOff,
    find_email_offs_of_rows,
    read_email_offs_of_rows,
)
from services.subscriptions.members.engagement_views import (
    build_choice_query,
    build_engagement_query,
)
from storage.database import Statement
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

_Row = dict[str, Any]
# An estimate of how many bytes the JSON format adds to each row of a response.
_ADDED_JSON_BYTES = 150
# In the key of a cached statement, these placeholders replace e-mail addresses, so that all
# addresses use the same statement.
_ADDRESS = "an address"
_ADDRESS_PREFIX = "the beginning of one*"
# The last Unicode character, which sorts after every character of an e-mail address.
_LAST_CHARACTER = "\U0010ffff"
_record = Subscription.__table__.c
_person = User.__table__.c
_LIST_ID: BindParameter[int] = bindparam("list_id")
_IS_ON_LIST = _record.list_id == _LIST_ID
_OWNER_ID = select(MailingList.user_id).where(MailingList.id == _LIST_ID).scalar_subquery()
_RETIRED = (
    select(cast(MemberField.id, Text))
    .where(MemberField.user_id == _OWNER_ID, MemberField.retired_at.is_not(None))
    .scalar_subquery()
)
# The columns of ``subscriptions`` that a list's owner may see. Owners don't see a new column of
# ``subscriptions`` until a developer adds the column to ``_COLUMNS``.
_COLUMNS = (
    *_record["id", "list_id", "user_id", "status", "type", "paid_expiry", "email_enabled"],
    *_record["name", "email", "source", "joined_at", "import_id", "created_at", "updated_at"],
    # Exclude the values of retired fields, because a member may have values for many retired
    # fields.
    _record.fields.op("-", return_type=_record.fields.type)(func.array(_RETIRED)).label("fields"),
    *_record["tag_ids", "origin"],
)
# An owner sees the name in a member's account only if the member was logged in when subscribing.
_SHOWN_NAME = case((_record.source == Via.LOGIN.value, _person.name)).label("user_name")
_ENGAGEMENT: tuple[ColumnElement[Any], ...] = (
    literal_column(build_engagement_query("subscriptions"), JSONB).label("engagement"),
    literal_column(build_choice_query("subscriptions"), JSONB).label("engagement_choice"),
)
_RECORDS = (
    select(*_COLUMNS, *_ENGAGEMENT, _SHOWN_NAME)
    .join_from(Subscription.__table__, User.__table__, _person.id == _record.user_id)
    .order_by(_record.id.desc())
)
_NAMES = tuple(_RECORDS.selected_columns.keys())
_TAG_NAMES = Statement("SELECT id, name FROM tags WHERE id = ANY(:tag_ids)")
# Selects one row per field of the list's owner, or one row with a NULL field if the owner has no
# fields.
_LIST_AND_FIELDS = Statement("""
SELECT l.user_id, f.id, f.key FROM lists AS l
LEFT JOIN fields AS f ON f.user_id = l.user_id AND f.retired_at IS NULL
WHERE l.id = :list_id AND l.archived_at IS NULL ORDER BY f.id
""")
_BY_IDS = _RECORDS.where(_record.id == any_(bindparam("ids", type_=ARRAY(BigInteger))))


@dataclass(frozen=True)
class MemberFilters:
    """The filters of an owner.

    Attributes:
        email: a whole address, or the beginning of an address followed by ``*``.
        premium: whether the member has a paid tier, an exact ``Tier``, or ``None`` for all members.
            Expired tiers count as free.
    """

    status: SubscriptionStatus = SubscriptionStatus.ACTIVE
    email: str | None = None
    premium: bool | Tier | None = None


@dataclass(frozen=True)
class MemberPage:
    total: int
    page: PageOfRows[_Row]


def read_member_page(
    resources: Resources,
    caller: Caller,
    list_id: int,
    filters: MemberFilters,
    page: PageRequest,
) -> MemberPage:
    """Return the newest members first.

    A page of 200 takes three or four round trips to the database, and every 200 more take one or
    two.
    """
    database = resources.database
    field_rows = database.rows(_LIST_AND_FIELDS, list_id=list_id)
    lists.require_owner(field_rows[0][0] if field_rows else None, caller)
    fields = OwnFields(
        MemberField(id=field_id, key=key) for _, field_id, key in field_rows if field_id is not None
    )
    kind, values = _split_filters(filters)
    values["list_id"] = list_id

    def read_part(part: PageRequest) -> PageOfRows[_Row]:
        start = {"offset": part.offset}
        if part.cursor is not None:
            start = {"before": ids.parse_id_cursor(part.cursor)}
        records_statement, _ = _build_statements(kind, by_cursor=part.cursor is not None)
        records = database.rows(records_statement, **values | start | {"limit": part.limit + 1})
        rows = [dict(zip(_NAMES, record, strict=True)) for record in records]
        return paging.cut_page(rows, part.limit, _cursor_of)

    def add_attributes(rows: list[_Row]) -> list[_Row]:
        tag_ids = {each for row in rows for each in row["tag_ids"]}
        names = dict(database.rows(_TAG_NAMES, tag_ids=sorted(tag_ids))) if tag_ids else {}
        email_offs = read_email_offs_of_rows(resources, rows)
        return _add_attributes(AttributeFormatter(fields, names), email_offs, rows)

    member_rows = paging.fill_page(page, read_part, add_attributes, _size_in_bytes)
    _, count_statement = _build_statements(kind, by_cursor=False)
    [(count,)] = database.rows(count_statement, **values)
    return MemberPage(total=count, page=member_rows)


def _cursor_of(row: _Row) -> str:
    return str(row["id"])


def _size_in_bytes(row: _Row) -> int:
    return len(orjson.dumps(row)) + _ADDED_JSON_BYTES


def read_members_by_id(
    uow: UnitOfWork, list_id: int, fields: OwnFields, subscription_ids: Sequence[int]
) -> PageOfRows[_Row]:
    """Return the columns of ``read_member_page`` in the order of the ids."""
    remaining_ids = list(subscription_ids)
    if not remaining_ids:
        return PageOfRows([], None)

    def read_part(part: PageRequest) -> PageOfRows[_Row]:
        part_ids = remaining_ids[: part.limit]
        del remaining_ids[: part.limit]
        records = uow.session.execute(_BY_IDS, {"list_id": list_id, "ids": part_ids}).all()
        rows = [dict(zip(_NAMES, record, strict=True)) for record in records]
        rows.sort(key=lambda row: part_ids.index(row["id"]))
        return PageOfRows(rows, str(part_ids[-1]) if remaining_ids else None, _cursor_of)

    def add_attributes(rows: list[_Row]) -> list[_Row]:
        names = tags.find_tag_names(uow, (each for row in rows for each in row["tag_ids"]))
        email_offs = find_email_offs_of_rows(uow, rows)
        return _add_attributes(AttributeFormatter(fields, names), email_offs, rows)

    return paging.fill_page(
        PageRequest(len(remaining_ids)), read_part, add_attributes, _size_in_bytes
    )


def _add_attributes(
    attributes: AttributeFormatter, email_offs: Mapping[int, EmailOff], rows: list[_Row]
) -> list[_Row]:
    for row in rows:
        row["email_off"] = email_offs.get(row["id"])
        row.update(attributes.format_attributes(row["fields"], row.pop("tag_ids")))
        row["joined_at"] = row["joined_at"] or row["created_at"]
    return rows


def _split_filters(filters: MemberFilters) -> tuple[MemberFilters, dict[str, Any]]:
    """Return the key of a cached statement, which all addresses share, and the parameters."""
    # A filter for the free tier selects the same members as a filter for members without a paid
    # tier.
    premium = False if filters.premium is Tier.FREE else filters.premium
    kind = replace(filters, email=None, premium=premium)
    email = None if filters.email is None else strip_invisible(filters.email)
    if email is None or email == "*":
        return kind, {}
    if "\0" in email:
        # Postgres rejects texts with NUL characters. Replace an address that contains a NUL with an
        # empty address, which matches no member.
        email = ""
    elif email.endswith("*"):
        prefix = unicodedata.normalize("NFC", email.removesuffix("*")).lower()
        if kind.status is not SubscriptionStatus.ACTIVE:
            # Build a LIKE pattern for addresses that begin with the prefix.
            prefix = re.sub(r"([\\%_])", r"\\\1", prefix) + "%"
        return replace(kind, email=_ADDRESS_PREFIX), {"email": prefix}
    # Ignore the error for an invalid address, because an invalid address matches no member.
    with suppress(DomainError):
        email = email_addresses.normalise_address(email)
    return replace(kind, email=_ADDRESS), {"email": email}


@cache
def _build_statements(kind: MemberFilters, *, by_cursor: bool) -> tuple[Statement, Statement]:
    """Find ids in an index before reading whole rows, to skip previous pages quickly."""
    before: Any = bindparam("before") if by_cursor else None
    ids_query = select(_record.id).where(*_build_conditions(kind))
    if kind.email is None:
        ids_query = paging.order_newest_first(
            ids_query, _record.list_id, _LIST_ID, _record.id, before=before, is_read_backwards=True
        )
    else:
        # OFFSET 0 makes Postgres find all matching members with the index on addresses and sort
        # them afterwards, instead of reading the newest members of all lists.
        is_older = true() if before is None else _record.id < before
        matching = ids_query.where(_IS_ON_LIST, is_older).offset(literal_column("0")).subquery()
        ids_query = select(matching.c.id).order_by(matching.c.id.desc())
    if not by_cursor:
        ids_query = ids_query.offset(bindparam("offset"))
    page_ids = ids_query.limit(bindparam("limit")).subquery()
    records = _RECORDS.join(page_ids, page_ids.c.id == _record.id)
    return Statement(records), Statement(select(_build_count(kind)))


def _build_count(kind: MemberFilters) -> ColumnElement[int]:
    if kind.premium is False:
        # Count members without a paid tier by subtracting paying members from all members, because
        # counting the few paying members is much faster.
        all_count = _build_count(replace(kind, premium=None))
        paid_count = _build_count(replace(kind, premium=True))
        return all_count - paid_count
    if kind == MemberFilters():
        return active_count(bindparam("list_id"))
    query = select(func.count()).where(_IS_ON_LIST, *_build_conditions(kind))
    return query.scalar_subquery()


def build_prefix_condition(
    address: ColumnElement[Any], prefix: ColumnElement[str]
) -> ColumnElement[bool]:
    """Avoid ``LIKE``, with which Postgres might choose the trigram index on addresses.

    This index is slower if many members match.
    """
    # ``precedence=10`` makes SQLAlchemy put the right operand, a concatenation, in parentheses.
    is_before = address.bool_op("~<~", precedence=10)
    return and_(address.bool_op("~>=~")(prefix), is_before(prefix.concat(literal(_LAST_CHARACTER))))


def _build_conditions(kind: MemberFilters) -> list[ColumnElement[bool]]:
    conditions = [_record.status == kind.status.value]
    if kind.email == _ADDRESS:
        conditions.append(_record.email == bindparam("email"))
    if kind.email == _ADDRESS_PREFIX and kind.status is SubscriptionStatus.ACTIVE:
        conditions.append(build_prefix_condition(_record.email, bindparam("email", type_=Text)))
    elif kind.email == _ADDRESS_PREFIX:
        # No index contains the addresses of inactive members in order, so use the trigram index.
        conditions.append(_record.email.like(bindparam("email")))
    if kind.premium is not None:
        unexpired = or_(_record.paid_expiry.is_(None), _record.paid_expiry > func.now())
        paid = and_(_record.type != Tier.FREE.value, unexpired)
        conditions.append(not_(paid) if kind.premium is False else paid)
    if isinstance(kind.premium, Tier):
        conditions.append(_record.type == kind.premium.value)
    return conditions
