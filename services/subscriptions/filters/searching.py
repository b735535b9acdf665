"""Pages of the members of a list whom a filter means, newest first.

No filter has a page read more rows of a list than ``MAX_FAR_MEMBERS``, so that a page costs the
same in a list of any size. It is looked for in three places, one after the other:

1. among the newest members, which is quick where many are meant, and is all of most lists;
2. by the indexes of what the filter compares, which is quick where few are meant;
3. among more of the newest, where no index helps. A page may then end before it is full, and its
   cursor goes on after the last member who was looked at.

The first and the last read a fixed number of rows in a fixed order, whatever the planner takes the
list to hold. It takes a filter's conditions to have nothing to do with each other or with the age
of a record, and would otherwise choose by that.
"""

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
from services.paging import PageOfRows, PageRequest, newest_first
from services.subscriptions.filters.conditions import Condition
from services.subscriptions.filters.member_filter import MemberFilter
from services.subscriptions.members import member_pages
from storage.expected_errors import raise_instead
from storage.unit_of_work import UnitOfWork

# 10 to 20 ms of work.
MAX_NEAR_MEMBERS = 20_000
# A second or less, where the rows are in memory.
MAX_FAR_MEMBERS = 500_000
# An index that finds more than a page's worth, of members who are all old, is given up.
_MAX_INDEX_SECONDS = 2
_BRIEFLY = text(f"SET LOCAL statement_timeout = '{_MAX_INDEX_SECONDS}s'")

_TABLE = Subscription.__table__
_record = _TABLE.c
_LIST_ID: BindParameter[int] = bindparam("list_id", type_=BigInteger)
_BEFORE: BindParameter[int] = bindparam("before", type_=BigInteger)


@dataclass(frozen=True)
class FoundMembers:
    """A page of a search.

    Attributes:
        page: as ``member_pages`` has it. It may have fewer rows than were asked for, and lead on.
        total: how many are meant, on the first page; ``None`` where ``MAX_NEAR_MEMBERS`` are not
            the whole list, and more are meant than the page shows.
    """

    page: PageOfRows[dict[str, Any]]
    total: int | None


def search(
    uow: UnitOfWork,
    list_id: int,
    wanted: MemberFilter,
    asked: PageRequest,
    status: SubscriptionStatus | None = None,
) -> FoundMembers:
    """The page after the cursor of ``asked``: of members of this status, or of active ones.

    The offset plays no part. Raises ``cursor.invalid``, ``filter.too_slow``.
    """
    before = None if asked.cursor is None else ids.of_cursor(asked.cursor)
    statuses = wanted.statuses(None if status is None else (status,))
    if not statuses:
        return FoundMembers(PageOfRows([], None), 0 if before is None else None)
    with raise_instead(psycopg2.errors.QueryCanceled, FILTER_TOO_SLOW()):
        return _Search(uow, list_id, wanted, statuses, asked.limit).page(before)


@dataclass(frozen=True)
class _Search:
    uow: UnitOfWork
    list_id: int
    wanted: MemberFilter
    statuses: tuple[SubscriptionStatus, ...]
    limit: int

    def page(self, before: int | None) -> FoundMembers:
        found, end = self._found(before)
        shown = found[: self.limit]
        if len(found) > self.limit:
            end = shown[-1]
        total = None
        if before is None and end is None:
            total = len(shown)
        # In a list that is not too long to count them.
        elif before is None and self._last(MAX_NEAR_MEMBERS, None) is None:
            seen = newest(self.statuses, MAX_NEAR_MEMBERS, by_cursor=False)
            query = select(func.count()).select_from(seen).where(self._condition(seen))
            total = self.uow.session.scalar(query, self._start(None))
        rows = member_pages.read_members_by_id(self.uow, self.list_id, self.wanted.fields, shown)
        if rows.next_cursor is None and end is not None:
            rows = PageOfRows(rows.rows, str(end))
        return FoundMembers(rows, total)

    def _found(self, before: int | None) -> tuple[list[int], int | None]:
        """Ids of those who are meant, up to one more than a page, and where the look at them ended.

        ``None``: at the end of the list.
        """
        found = self._among(MAX_NEAR_MEMBERS, before)
        if len(found) > self.limit or (end := self._last(MAX_NEAR_MEMBERS, before)) is None:
            return found, None
        by_index = self._by_index(before)
        if by_index is not None:
            return by_index, None
        found = self._among(MAX_FAR_MEMBERS, before)
        return found, end if len(found) > self.limit else self._last(MAX_FAR_MEMBERS, before)

    def _among(self, most: int, before: int | None) -> list[int]:
        """Ids of those who are meant among so many of the newest."""
        seen = newest(self.statuses, most, by_cursor=before is not None)
        query = _in_order(select(seen.c.id).where(self._condition(seen)), seen)
        return list(self.uow.session.scalars(query.limit(self.limit + 1), self._start(before)))

    def _last(self, most: int, before: int | None) -> int | None:
        """The id of the last of so many, unless the list ends before it."""
        seen = newest(self.statuses, most, by_cursor=before is not None, are_ids_alone=True)
        query = _in_order(select(seen.c.id), seen).offset(most - 1).limit(1)
        last: int | None = self.uow.session.scalar(query, self._start(before))
        return last

    def _start(self, before: int | None) -> dict[str, int]:
        """The values of the statements' parameters."""
        start = {} if before is None else {_BEFORE.key: before}
        return {_LIST_ID.key: self.list_id, **start}

    def _condition(self, rows: FromClause) -> Condition:
        return self.wanted.condition(rows, asked=self.statuses)

    def _by_index(self, before: int | None) -> list[int] | None:
        """Find the newest matching members by indexes on the values that the filter compares.

        Return the members' ids. Return ``None`` if the filter compares values that have no index,
        or if Postgres takes too long.
        """
        indexed = self.wanted.indexed()
        if indexed is None:
            return None
        query = select(_record.id).where(_record.list_id == self.list_id, indexed)
        query = query.where(self._condition(_TABLE))
        if before is not None:
            query = query.where(_record.id < before)
        # OFFSET 0 makes Postgres find all matching members by index, and then sort them. Without
        # OFFSET 0, Postgres might test every member of the list, newest first.
        found = query.offset(literal_column("0")).subquery()
        newest = select(found.c.id).order_by(found.c.id.desc()).limit(self.limit + 1)
        try:
            with self.uow.session.begin_nested():
                self.uow.session.execute(_BRIEFLY)
                return list(self.uow.session.scalars(newest))
        except OperationalError as error:
            if not isinstance(error.orig, psycopg2.errors.QueryCanceled):
                raise
            return None


# The subquery is cached for all searches, because SQLAlchemy needs a millisecond to build it.
@cache
def newest(
    statuses: tuple[SubscriptionStatus, ...],
    most: int,
    *,
    by_cursor: bool,
    are_ids_alone: bool = False,
) -> Subquery:
    """Return a query for the newest members with one of the statuses, at most ``most``.

    Its parameters are ``list_id`` and, with ``by_cursor``, the id ``before`` which they come.
    """
    columns = (_record.id, _record.list_id) if are_ids_alone else tuple(_record)

    def of_status(status: SubscriptionStatus) -> Select[Any]:
        query = select(*columns).where(_record.status == status.value)
        return newest_first(
            query,
            _record.list_id,
            _LIST_ID,
            _record.id,
            before=_BEFORE if by_cursor else None,
            is_read_backwards=True,
        ).limit(most)

    queries = [of_status(each) for each in statuses]
    if len(queries) == 1:
        return queries[0].subquery()
    merged = union_all(*queries).subquery()
    return _in_order(select(merged), merged).limit(most).subquery()


@cache
def _in_order(query: Select[Any], rows: Subquery) -> Select[Any]:
    return query.order_by(rows.c.list_id.desc(), rows.c.id.desc())
