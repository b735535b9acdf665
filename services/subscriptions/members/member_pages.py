"""Pages of a list's members for its owner.

Each kind of query is built and compiled once, and each is a transaction of its own: SQLAlchemy
takes longer for a statement than Postgres to run it. They select from tables and return plain rows,
not model objects, since a page may have a thousand rows.
"""

import re
import unicodedata
from collections.abc import Sequence
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
    literal_column,
    not_,
    or_,
    select,
    true,
)

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
from services.subscriptions.member_attributes import ShownAttributes
from services.subscriptions.members.changes import Via
from storage.database import Database, Statement
from storage.unit_of_work import UnitOfWork

_Row = dict[str, Any]
# Facts about a member that an answer shows beside the row.
_FRAME_BYTES = 150


@dataclass(frozen=True)
class MemberFilters:
    """The members that an owner asks for.

    Attributes:
        email: a whole address, or the beginning of one followed by ``*``.
        premium: ``True`` for members on a paid tier now, ``False`` for all others, a tier for
            members on that tier now, ``None`` for any member.
    """

    status: SubscriptionStatus = SubscriptionStatus.ACTIVE
    email: str | None = None
    premium: bool | Tier | None = None


@dataclass(frozen=True)
class MemberPage:
    total: int
    # The columns that an owner sees of each subscription, and `user_name`, the name on the account.
    page: PageOfRows[_Row]


def read_member_page(
    database: Database, caller: Caller, list_id: int, filters: MemberFilters, wanted: PageRequest
) -> MemberPage:
    """Return one page of the caller's own list, newest first, in three or four round trips.

    A page of more than 50 takes another one or two for each 50. Raises ``list.not_found``,
    ``list.not_owner``, ``cursor.invalid``.
    """
    of_list = database.rows(_LIST_AND_FIELDS, list_id=list_id)
    lists.require_owner(of_list[0][0] if of_list else None, caller)
    fields = OwnFields(
        MemberField(id=each, key=key) for _, each, key in of_list if each is not None
    )
    kind, values = _query_kind(filters)
    values["list_id"] = list_id

    def read(asked: PageRequest) -> PageOfRows[_Row]:
        start = {"offset": asked.offset}
        if asked.cursor is not None:
            start = {"before": ids.parse_id_cursor(asked.cursor)}
        records, _ = _statements(kind, by_cursor=asked.cursor is not None)
        found = database.rows(records, **values | start | {"limit": asked.limit + 1})
        rows = [dict(zip(_NAMES, row, strict=True)) for row in found]
        return paging.cut(rows, asked.limit, _cursor_of)

    def show(rows: list[_Row]) -> list[_Row]:
        tag_ids = {each for row in rows for each in row["tag_ids"]}
        names = dict(database.rows(_TAG_NAMES, tag_ids=sorted(tag_ids))) if tag_ids else {}
        return _show_attributes(ShownAttributes(fields, names), rows)

    found = paging.fill(wanted, read, show, _size_of)
    _, total = _statements(kind, by_cursor=False)
    [(count,)] = database.rows(total, **values)
    return MemberPage(total=count, page=found)


def _cursor_of(row: _Row) -> str:
    return str(row["id"])


def _size_of(row: _Row) -> int:
    return len(orjson.dumps(row)) + _FRAME_BYTES


def of_ids(
    uow: UnitOfWork, list_id: int, own: OwnFields, subscription_ids: Sequence[int]
) -> PageOfRows[_Row]:
    """Return these subscriptions of the list, in the form of ``read_member_page``.

    The ids have to be in falling order.

    Args:
        own: the fields of the list's owner.
    """
    left = list(subscription_ids)
    if not left:
        return PageOfRows([], None)

    def read(asked: PageRequest) -> PageOfRows[_Row]:
        wanted = left[: asked.limit]
        del left[: asked.limit]
        found = uow.session.execute(_BY_IDS, {"list_id": list_id, "ids": wanted}).all()
        rows = [dict(zip(_NAMES, row, strict=True)) for row in found]
        return PageOfRows(rows, str(wanted[-1]) if left else None, _cursor_of)

    def show(rows: list[_Row]) -> list[_Row]:
        names = tags.find_tag_names(uow, (each for row in rows for each in row["tag_ids"]))
        return _show_attributes(ShownAttributes(own, names), rows)

    return paging.fill(PageRequest(len(left)), read, show, _size_of)


def _show_attributes(shown: ShownAttributes, rows: list[_Row]) -> list[_Row]:
    """Put fields and tags by their names into the rows."""
    for row in rows:
        row.update(shown.of(row["fields"], row.pop("tag_ids")))
        row["joined_at"] = row["joined_at"] or row["created_at"]
    return rows


_ADDRESS, _BEGINNING = "an address", "the beginning of one*"


def _query_kind(filters: MemberFilters) -> tuple[MemberFilters, dict[str, Any]]:
    """The filters with a placeholder for the address, and the values of the statement.

    Filters that differ in the address alone share one cached statement.
    """
    # A member on the free tier is a member who is not on a paid one.
    premium = False if filters.premium is Tier.FREE else filters.premium
    kind = replace(filters, email=None, premium=premium)
    email = None if filters.email is None else strip_invisible(filters.email)
    if email is None or email == "*":
        return kind, {}
    if "\0" in email:
        # No address has a zero character, and the database refuses one as a value.
        email = ""
    elif email.endswith("*"):
        beginning = unicodedata.normalize("NFC", email.removesuffix("*")).lower()
        pattern = re.sub(r"([\\%_])", r"\\\1", beginning) + "%"
        return replace(kind, email=_BEGINNING), {"email": pattern}
    # Text that is no address stays as it is, and matches no record.
    with suppress(DomainError):
        email = email_addresses.normalise_address(email)
    return replace(kind, email=_ADDRESS), {"email": email}


_record = Subscription.__table__.c
_person = User.__table__.c
_LIST_ID: BindParameter[int] = bindparam("list_id")
_OF_LIST = _record.list_id == _LIST_ID
_OWNER_ID = select(MailingList.user_id).where(MailingList.id == _LIST_ID).scalar_subquery()
_RETIRED = (
    select(cast(MemberField.id, Text))
    .where(MemberField.user_id == _OWNER_ID, MemberField.retired_at.is_not(None))
    .scalar_subquery()
)
# The columns that an owner sees, named one by one: a column that is added later is not shown.
_COLUMNS = (
    *_record["id", "list_id", "user_id", "status", "type", "paid_expiry", "email_enabled"],
    *_record["name", "email", "source", "joined_at", "import_id", "created_at", "updated_at"],
    # Without values of fields that were retired: a member may have far more of these than shown.
    _record.fields.op("-", return_type=_record.fields.type)(func.array(_RETIRED)).label("fields"),
    _record.tag_ids,
)
# The owner sees the account's name only of members who subscribed while logged in.
_SHOWN_NAME = case((_record.source == Via.LOGIN.value, _person.name)).label("user_name")
_RECORDS = (
    select(*_COLUMNS, _SHOWN_NAME)
    .join_from(Subscription.__table__, User.__table__, _person.id == _record.user_id)
    .order_by(_record.id.desc())
)
_NAMES = tuple(_RECORDS.selected_columns.keys())
_TAG_NAMES = Statement("SELECT id, name FROM tags WHERE id = ANY(:tag_ids)")
# A row of each field, one without a field where the owner has none.
_LIST_AND_FIELDS = Statement("""
SELECT l.user_id, f.id, f.key FROM lists AS l
LEFT JOIN fields AS f ON f.user_id = l.user_id AND f.retired_at IS NULL
WHERE l.id = :list_id AND l.archived_at IS NULL ORDER BY f.id
""")
_BY_IDS = _RECORDS.where(_record.id == any_(bindparam("ids", type_=ARRAY(BigInteger))))


@cache
def _statements(kind: MemberFilters, *, by_cursor: bool) -> tuple[Statement, Statement]:
    """The statements for a page's records and for the number of all."""
    # The ids come first, from an index alone, then the rows: an offset skips many of them.
    before: Any = bindparam("before") if by_cursor else None
    wanted = select(_record.id).where(*_conditions(kind))
    if kind.email is None:
        wanted = paging.newest_first(
            wanted, _record.list_id, _LIST_ID, _record.id, before=before, is_read_backwards=True
        )
    else:
        # OFFSET 0 has Postgres find all of them by the index of addresses and sort them. Otherwise
        # it may look for the newest ones among all members of all lists.
        older = true() if before is None else _record.id < before
        found = wanted.where(_OF_LIST, older).offset(literal_column("0")).subquery()
        wanted = select(found.c.id).order_by(found.c.id.desc())
    if not by_cursor:
        wanted = wanted.offset(bindparam("offset"))
    ids = wanted.limit(bindparam("limit")).subquery()
    return Statement(_RECORDS.join(ids, ids.c.id == _record.id)), Statement(select(_count(kind)))


def _count(kind: MemberFilters) -> ColumnElement[int]:
    if kind.premium is False:
        # Few members pay: subtracting them is many times quicker than counting the others.
        all_tiers, paid = replace(kind, premium=None), replace(kind, premium=True)
        return _count(all_tiers) - _count(paid)
    if kind == MemberFilters():
        return active_count(bindparam("list_id"))
    counted = select(func.count()).where(_OF_LIST, *_conditions(kind))
    return counted.scalar_subquery()


def _conditions(kind: MemberFilters) -> list[ColumnElement[bool]]:
    """For the members of any list."""
    conditions = [_record.status == kind.status.value]
    if kind.email == _ADDRESS:
        conditions.append(_record.email == bindparam("email"))
    if kind.email == _BEGINNING:
        conditions.append(_record.email.like(bindparam("email")))
    if kind.premium is not None:
        unexpired = or_(_record.paid_expiry.is_(None), _record.paid_expiry > func.now())
        paid = and_(_record.type != Tier.FREE.value, unexpired)
        conditions.append(not_(paid) if kind.premium is False else paid)
    if isinstance(kind.premium, Tier):
        conditions.append(_record.type == kind.premium.value)
    return conditions
