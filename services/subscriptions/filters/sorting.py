"""Reads pages of the members who match a filter, sorted by joining time, address or name.

Two indexes contain the active members of a list in order: one by joining time, the other by
address. In a long list, a page first scans such an index briefly. If too few members match, it
sorts all matching members, at most ``MAX_SORTED_MEMBERS``. If more match, it scans further.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import cache
from typing import Any, Self

import orjson
import psycopg2.errors
from sqlalchemy import (
    ARRAY,
    BigInteger,
    BindParameter,
    ColumnElement,
    Select,
    Subquery,
    Text,
    UnaryExpression,
    and_,
    any_,
    bindparam,
    collate,
    func,
    literal,
    literal_column,
    or_,
    select,
    tuple_,
)
from sqlalchemy.dialects.postgresql import array
from sqlalchemy.sql.operators import custom_op

from core.errors.mailing import FILTER_TOO_SLOW
from core.errors.requests import CURSOR_INVALID
from core.ids import MAX_ID
from models import Subscription, SubscriptionStatus
from services.paging import PageOfRows, PageRequest
from services.subscriptions.filters import searching
from services.subscriptions.filters.conditions import CASE_FOLDING_COLLATION
from services.subscriptions.filters.member_filter import MemberFilter
from services.subscriptions.filters.searching import MemberSearchPage
from services.subscriptions.members import member_pages
from storage.expected_errors import raise_instead
from storage.unit_of_work import UnitOfWork

MAX_SORTED_MEMBERS = 20_000
# The last Unicode character. Members without a name or an address come last, or first in a
# descending order.
_LAST_CHARACTER = "\U0010ffff"
_record = Subscription.__table__.c
_LIST_ID: BindParameter[int] = bindparam("list_id", type_=BigInteger)
_AFTER_ID: BindParameter[int] = bindparam("after_id", type_=BigInteger)
_ACTIVE = (SubscriptionStatus.ACTIVE,)


class SortKey(StrEnum):
    JOINED = "joined"
    EMAIL = "email"
    NAME = "name"


@dataclass(frozen=True)
class _Place:
    """The position of a member in the order."""

    id: int
    key: Any


@dataclass(frozen=True)
class MemberOrder:
    """An order of members. As a text, a minus sign before the key stands for a descending order."""

    key: SortKey
    is_descending: bool

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Parse a text such as ``-joined``, or return ``None`` for other texts."""
        name = text.removeprefix("-")
        return cls(SortKey(name), name != text) if name in [*SortKey] else None

    def __str__(self) -> str:
        return f"-{self.key}" if self.is_descending else self.key.value

    @property
    def is_indexed(self) -> bool:
        return self.key is not SortKey.NAME

    def build_key(self, rows: Any = _record) -> ColumnElement[Any]:
        """Build the expression that the index for this order contains, if there is one."""
        if self.key is SortKey.JOINED:
            return func.coalesce(rows.joined_at, rows.created_at)
        if self.key is SortKey.EMAIL:
            return rows.email  # type: ignore[no-any-return]
        # Decompose letters with accents, so that they follow the letter without an accent.
        name = collate(func.nullif(rows.name, ""), CASE_FOLDING_COLLATION)
        return func.casefold(func.normalize(name, literal_column("NFKD")))

    def sort(self, key: ColumnElement[Any], row_id: ColumnElement[int]) -> list[Any]:
        operator = self._choose_operator(self.is_descending)
        return [
            UnaryExpression(key, modifier=custom_op(f"USING {operator}")),
            row_id.desc() if self.is_descending else row_id,
        ]

    def build_after(
        self, key: ColumnElement[Any], row_id: ColumnElement[int]
    ) -> ColumnElement[bool]:
        """Build the condition that a member follows the parameters ``after_key`` and ``after_id``.

        Very many members may have joined at the same time, so that this condition must compare both
        columns of the index at once.
        """
        after_key: BindParameter[Any] = bindparam("after_key", type_=key.type)
        is_after_id = row_id < _AFTER_ID if self.is_descending else row_id > _AFTER_ID
        if self.key is SortKey.JOINED:
            places = tuple_(key, row_id), tuple_(after_key, _AFTER_ID)
            return places[0] < places[1] if self.is_descending else places[0] > places[1]
        operator = self._choose_operator(not self.is_descending)
        is_from = key.bool_op("~<=~" if self.is_descending else "~>=~")(after_key)
        return and_(is_from, or_(key.bool_op(operator)(after_key), is_after_id))

    def _choose_operator(self, is_greater: bool) -> str:
        # The operators of the index by address compare bytes.
        if self.key is SortKey.JOINED:
            return ">" if is_greater else "<"
        return "~>~" if is_greater else "~<~"

    def build_cursor(self, place: _Place) -> str:
        values = orjson.dumps([str(self), place.id, place.key])
        return base64.urlsafe_b64encode(values).decode().rstrip("=")

    def parse_cursor(self, cursor: str) -> _Place:
        """Raise ``cursor.invalid`` for a cursor of another order."""
        try:
            padding = "=" * (-len(cursor) % 4)
            order, row_id, key = orjson.loads(base64.urlsafe_b64decode(cursor + padding))
            if self.key is SortKey.JOINED:
                key = datetime.fromisoformat(key)
        except (TypeError, ValueError):
            raise CURSOR_INVALID() from None
        is_id = type(row_id) is int and 0 <= row_id <= MAX_ID
        is_key = key.tzinfo if isinstance(key, datetime) else isinstance(key, str)
        if order != str(self) or not is_id or not is_key or "\0" in str(key):
            raise CURSOR_INVALID()
        return _Place(row_id, key)


def read_sorted_page(
    uow: UnitOfWork,
    list_id: int,
    member_filter: MemberFilter,
    order: MemberOrder,
    page: PageRequest,
) -> MemberSearchPage | None:
    """Return ``None`` if too many members match to sort them.

    The page may contain fewer members than requested, as the pages of ``searching`` do.
    """
    after = None if page.cursor is None else order.parse_cursor(page.cursor)
    statuses = member_filter.list_statuses()
    search = _SortedSearch(uow, list_id, member_filter, statuses, order, page.limit)
    with raise_instead(psycopg2.errors.QueryCanceled, FILTER_TOO_SLOW()):
        return search.read_page(after)


@dataclass(frozen=True)
class _SortedSearch:
    uow: UnitOfWork
    list_id: int
    member_filter: MemberFilter
    statuses: tuple[SubscriptionStatus, ...]
    order: MemberOrder
    limit: int

    def read_page(self, after: _Place | None) -> MemberSearchPage | None:
        uses_index = self.order.is_indexed and self.statuses == _ACTIVE
        if uses_index and searching.is_long(self.uow, self.list_id, self.statuses):
            places, end = self._scan(searching.MAX_SHORT_SCAN_MEMBERS, after)
            if len(places) > self.limit or end is None:
                return self._build_page(places, end)
        ids = searching.find_all_ids(self.uow, self.list_id, self.member_filter, MAX_SORTED_MEMBERS)
        if ids is not None:
            total = len(ids) if after is None else None
            return self._build_page(self._sort(ids, after), None, total)
        if not uses_index:
            return None
        return self._build_page(*self._scan(searching.MAX_LONG_SCAN_MEMBERS, after))

    def _scan(self, max_members: int, after: _Place | None) -> tuple[list[_Place], _Place | None]:
        """Return one additional member if more members match, and the last checked member.

        The last checked member is ``None`` if all members after ``after`` were checked.
        """
        scanned = _build_scan(self.order, max_members, by_cursor=after is not None)
        query = select(scanned.c.id, scanned.c.sort_key).order_by(
            *_sort_list(self.order, scanned.c, scanned.c.sort_key)
        )
        condition = self.member_filter.build_condition(scanned, allowed=self.statuses)
        places = self._read_places(query.where(condition).limit(self.limit + 1), after)
        if len(places) > self.limit:
            return places, None
        ends = self._read_places(query.offset(max_members - 1).limit(1), after)
        return places, ends[0] if ends else None

    def _sort(self, ids: Sequence[int], after: _Place | None) -> list[_Place]:
        key = self.order.build_key()
        if self.order.key is not SortKey.JOINED:
            key = func.coalesce(key, literal(_LAST_CHARACTER, Text), type_=Text)
        query = select(_record.id, key).where(
            _record.id == any_(bindparam("ids", type_=ARRAY(BigInteger)))
        )
        if after is not None:
            query = query.where(self.order.build_after(key, _record.id))
        query = query.order_by(*self.order.sort(key, _record.id)).limit(self.limit + 1)
        return self._read_places(query, after, ids=list(ids))

    def _read_places(
        self, query: Select[Any], after: _Place | None, **values: object
    ) -> list[_Place]:
        values[_LIST_ID.key] = self.list_id
        if after is not None:
            values |= {_AFTER_ID.key: after.id, "after_key": after.key}
        return [_Place(*row) for row in self.uow.session.execute(query, values)]

    def _build_page(
        self, places: list[_Place], end: _Place | None, total: int | None = None
    ) -> MemberSearchPage:
        place_by_id = {place.id: place for place in places[: self.limit]}
        rows = member_pages.read_members_by_id(
            self.uow, self.list_id, self.member_filter.fields, [*place_by_id]
        )
        if rows.next_cursor is not None:
            # The rows are so large that the page ends early.
            end = place_by_id[int(rows.next_cursor)]
        elif len(places) > self.limit:
            end = places[self.limit - 1]
        next_cursor = None if end is None else self.order.build_cursor(end)
        return MemberSearchPage(PageOfRows(rows.rows, next_cursor), total)


@cache
def _build_scan(order: MemberOrder, max_members: int, *, by_cursor: bool) -> Subquery:
    """Build a query for active members with the parameter ``list_id``, in the order of an index.

    The condition and the sorting by ``list_id`` make Postgres use the index, as in
    ``paging.order_newest_first``.
    """
    key = order.build_key()
    is_on_list = _record.list_id == any_(array([_LIST_ID]))
    query = select(*_record, key.label("sort_key")).where(
        is_on_list, _record.status == SubscriptionStatus.ACTIVE.value, key.is_not(None)
    )
    if by_cursor:
        query = query.where(order.build_after(key, _record.id))
    return query.order_by(*_sort_list(order, _record, key)).limit(max_members).subquery()


def _sort_list(order: MemberOrder, rows: Any, key: ColumnElement[Any]) -> list[Any]:
    """Sort by the columns of an index, because Postgres would sort all rows by other columns."""
    list_order = rows.list_id.desc() if order.is_descending else rows.list_id
    return [list_order, *order.sort(key, rows.id)]
