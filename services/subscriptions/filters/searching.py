"""Reads pages of the members who match a filter, newest first.

A search reads at most ``MAX_LONG_SCAN_MEMBERS`` members, so that longer lists don't take longer. It
first tries a short scan, then an index search, and finally a long scan.

- The short scan checks only the newest members, which is fast if many members match. Most lists are
  so short that it checks all their members.
- The index search is fast if few members match the filter.
- The long scan is used if no index helps. If it reaches its limit, the page may contain fewer
  members than requested, and the next page starts after the last checked member.

Scans read a fixed number of rows in a fixed order, so that the query planner of Postgres can't
choose a slow plan.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import psycopg2.errors
from sqlalchemy import (
    BigInteger,
    BindParameter,
    FromClause,
    Select,
    Subquery,
    TextClause,
    bindparam,
    func,
    literal_column,
    select,
    text,
    union_all,
)
from sqlalchemy.exc import OperationalError

from core import ids
from core.errors.mailing import FILTER_TOO_SLOW
from models import Subscription, SubscriptionStatus
from services.paging import PageOfRows, PageRequest, order_newest_first
from services.subscriptions.filters.conditions import Condition
from services.subscriptions.filters.member_filter import MemberFilter
from services.subscriptions.members import member_pages
from storage.expected_errors import raise_instead
from storage.unit_of_work import UnitOfWork

# The maximum number of members in a short scan, which takes 10 to 20 ms.
MAX_SHORT_SCAN_MEMBERS = 20_000
# The maximum number of members in a long scan, which takes at most one second if the rows are in
# memory.
MAX_LONG_SCAN_MEMBERS = 500_000
# The time limit for an index search, which is slow if very many members match.
_MAX_INDEX_SEARCH_SECONDS = 2

_TABLE = Subscription.__table__
_record = _TABLE.c
_LIST_ID: BindParameter[int] = bindparam("list_id", type_=BigInteger)
_BEFORE: BindParameter[int] = bindparam("before", type_=BigInteger)


@dataclass(frozen=True)
class MemberSearchPage:
    """A page with the columns of ``member_pages``.

    Only a first page has a ``total``, and only if the list is short or all matching members fit on
    it.
    """

    page: PageOfRows[dict[str, Any]]
    total: int | None


def search_members(
    uow: UnitOfWork,
    list_id: int,
    member_filter: MemberFilter,
    page: PageRequest,
    status: SubscriptionStatus | None = None,
) -> MemberSearchPage:
    """Return the members after ``page.cursor``, and ignore ``page.offset``."""
    before = None if page.cursor is None else ids.parse_id_cursor(page.cursor)
    statuses = member_filter.list_statuses(None if status is None else (status,))
    if not statuses:
        return MemberSearchPage(PageOfRows([], None), 0 if before is None else None)
    with raise_instead(psycopg2.errors.QueryCanceled, FILTER_TOO_SLOW()):
        return _Search(uow, list_id, member_filter, statuses, page.limit).read_page(before)


def is_long(uow: UnitOfWork, list_id: int, statuses: tuple[SubscriptionStatus, ...]) -> bool:
    """Return whether a list has more members with the statuses than a short scan checks."""
    query = _build_scan_end_query(statuses, MAX_SHORT_SCAN_MEMBERS, by_cursor=False)
    return uow.session.scalar(query, {_LIST_ID.key: list_id}) is not None


def find_all_ids(
    uow: UnitOfWork, list_id: int, member_filter: MemberFilter, max_members: int
) -> list[int] | None:
    """Return ``None`` if more members match, or if not all members could be checked."""
    statuses = member_filter.list_statuses()
    if not statuses:
        return []
    ids, end = _Search(uow, list_id, member_filter, statuses, max_members).find_ids(None)
    return ids if end is None and len(ids) <= max_members else None


@dataclass(frozen=True)
class _Search:
    """A search for one page. ``before`` is the id of the last member on the previous page."""

    uow: UnitOfWork
    list_id: int
    member_filter: MemberFilter
    statuses: tuple[SubscriptionStatus, ...]
    limit: int

    def read_page(self, before: int | None) -> MemberSearchPage:
        matching_ids, end = self.find_ids(before)
        page_ids = matching_ids[: self.limit]
        if len(matching_ids) > self.limit:
            end = page_ids[-1]
        total = None
        if before is None and end is None:
            total = len(page_ids)
        # Count the matching members only in a short list, because counting in a long list would be
        # slow.
        elif before is None and not is_long(self.uow, self.list_id, self.statuses):
            scanned = build_newest_query(self.statuses, MAX_SHORT_SCAN_MEMBERS, by_cursor=False)
            query = select(func.count()).select_from(scanned).where(self._build_condition(scanned))
            total = self.uow.session.scalar(query, self._list_parameters(None))
        rows = member_pages.read_members_by_id(
            self.uow, self.list_id, self.member_filter.fields, page_ids
        )
        if rows.next_cursor is None and end is not None:
            rows = PageOfRows(rows.rows, str(end))
        return MemberSearchPage(rows, total)

    def find_ids(self, before: int | None) -> tuple[list[int], int | None]:
        """Return one additional id if more members match, and the last checked id.

        The last checked id is ``None`` if all members were checked.
        """
        matching_ids = self._scan(MAX_SHORT_SCAN_MEMBERS, before)
        if len(matching_ids) > self.limit:
            return matching_ids, None
        end = self._find_scan_end(MAX_SHORT_SCAN_MEMBERS, before)
        if end is None:
            return matching_ids, None
        indexed_ids = self._search_index(before)
        if indexed_ids is not None:
            return indexed_ids, None
        matching_ids = self._scan(MAX_LONG_SCAN_MEMBERS, before)
        if len(matching_ids) <= self.limit:
            end = self._find_scan_end(MAX_LONG_SCAN_MEMBERS, before)
        return matching_ids, end

    def _scan(self, max_members: int, before: int | None) -> list[int]:
        scanned = build_newest_query(self.statuses, max_members, by_cursor=before is not None)
        query = _order_newest_first(
            select(scanned.c.id).where(self._build_condition(scanned)), scanned
        )
        return list(
            self.uow.session.scalars(query.limit(self.limit + 1), self._list_parameters(before))
        )

    def _find_scan_end(self, max_members: int, before: int | None) -> int | None:
        query = _build_scan_end_query(self.statuses, max_members, by_cursor=before is not None)
        end: int | None = self.uow.session.scalar(query, self._list_parameters(before))
        return end

    def _list_parameters(self, before: int | None) -> dict[str, int]:
        cursor_parameters = {} if before is None else {_BEFORE.key: before}
        return {_LIST_ID.key: self.list_id, **cursor_parameters}

    def _build_condition(self, rows: FromClause) -> Condition:
        return self.member_filter.build_condition(rows, allowed=self.statuses)

    def _search_index(self, before: int | None) -> list[int] | None:
        """Return ``None`` if no index helps or the search takes too long."""
        indexed_condition = self.member_filter.build_indexed_condition()
        if indexed_condition is None:
            return None
        query = select(_record.id).where(_record.list_id == self.list_id, indexed_condition)
        query = query.where(self._build_condition(_TABLE))
        if before is not None:
            query = query.where(_record.id < before)
        # OFFSET 0 makes Postgres find all matching members with an index and sort them afterwards,
        # instead of checking every member of the list.
        matching = query.offset(literal_column("0")).subquery()
        newest = select(matching.c.id).order_by(matching.c.id.desc()).limit(self.limit + 1)
        rows = execute_in_time(self.uow, newest, _MAX_INDEX_SEARCH_SECONDS)
        return None if rows is None else [subscription_id for (subscription_id,) in rows]


def execute_in_time(uow: UnitOfWork, query: Select[Any], max_seconds: int) -> Sequence[Any] | None:
    """Return ``None`` if the query takes too long."""
    try:
        with uow.session.begin_nested():
            uow.session.execute(_build_time_limit(max_seconds))
            return uow.session.execute(query).all()
    except OperationalError as error:
        if not isinstance(error.orig, psycopg2.errors.QueryCanceled):
            raise
        return None


def _build_time_limit(max_seconds: int) -> TextClause:
    return text(f"SET LOCAL statement_timeout = '{max_seconds}s'")


# Caching the queries saves a millisecond per search, because SQLAlchemy builds each query only
# once.
@cache
def build_newest_query(
    statuses: tuple[SubscriptionStatus, ...],
    max_members: int,
    *,
    by_cursor: bool,
    has_only_ids: bool = False,
) -> Subquery:
    """Build a query with the parameter ``list_id``, and ``before`` if ``by_cursor`` is true."""
    columns = (_record.id, _record.list_id) if has_only_ids else tuple(_record)

    def build_status_query(status: SubscriptionStatus) -> Select[Any]:
        query = select(*columns).where(_record.status == status.value)
        return order_newest_first(
            query,
            _record.list_id,
            _LIST_ID,
            _record.id,
            before=_BEFORE if by_cursor else None,
            is_read_backwards=True,
        ).limit(max_members)

    queries = [build_status_query(each) for each in statuses]
    if len(queries) == 1:
        return queries[0].subquery()
    merged = union_all(*queries).subquery()
    return _order_newest_first(select(merged), merged).limit(max_members).subquery()


def _build_scan_end_query(
    statuses: tuple[SubscriptionStatus, ...], max_members: int, *, by_cursor: bool
) -> Select[int]:
    scanned = build_newest_query(statuses, max_members, by_cursor=by_cursor, has_only_ids=True)
    query = _order_newest_first(select(scanned.c.id), scanned)
    return query.offset(max_members - 1).limit(1)


def _order_newest_first(query: Select[Any], rows: Subquery) -> Select[Any]:
    return query.order_by(rows.c.list_id.desc(), rows.c.id.desc())
