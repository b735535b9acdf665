"""Reads pages of database rows, newest first, by an offset or by a cursor.

Cursor pagination is fast even for the oldest rows of a large table. New rows don't shift the pages
that a cursor selects.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar

from sqlalchemy import Select, SQLColumnExpression, any_, tuple_
from sqlalchemy.dialects.postgresql import array
from sqlalchemy.orm import InstrumentedAttribute

from core import ids
from core.errors.requests import CURSOR_INVALID
from storage.unit_of_work import UnitOfWork

T = TypeVar("T")
U = TypeVar("U")
Q = TypeVar("Q", bound=Select[*tuple[Any, ...]])

# The maximum total size of the items in a response. A complete response may be up to 4 MB long.
MAX_ITEMS_BYTES = 3_990_000
# The number of rows that ``fill_page`` reads at once. Most pages contain fewer rows.
_MAX_BATCH_ROWS = 200
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOMENT_AND_ID = re.compile(r"([0-9]{1,17})-([0-9]{1,16})\Z", re.ASCII)


@dataclass(frozen=True)
class PageRequest:
    """The start and the maximum size of the page that a client requests.

    The page begins after the row that ``cursor`` identifies, or without a cursor after ``offset``
    rows.
    """

    limit: int
    offset: int = 0
    cursor: str | None = None


@dataclass(frozen=True)
class PageOfRows(Generic[T]):
    """A page of rows, and the cursor of the next page, if any.

    ``cursor_of`` returns the cursor after a given row. ``fill_page`` uses ``cursor_of`` when it
    ends a page before the last row.
    """

    rows: list[T]
    next_cursor: str | None
    cursor_of: Callable[[T], str] | None = None

    def cursor_after(self, count: int) -> str:
        assert self.cursor_of is not None
        return self.cursor_of(self.rows[count - 1])


# Paging options for callers that need all rows at once.
UNPAGED = PageRequest(1000)


def order_newest_first(
    query: Q,
    owner: Any,
    value: Any,
    row_id: Any,
    *,
    before: Any = None,
    is_read_backwards: bool = False,
) -> Q:
    """Extend a query to select all rows of an owner, in descending order of their ids.

    The query forces Postgres to use the index on owner and id. With the index of the primary key,
    Postgres might read millions of newer rows of other owners. Postgres sometimes chooses that
    index, because it assumes that an owner's rows are spread evenly over the table.

    The query has the condition ``owner = ANY(ARRAY[value])``, so Postgres must sort by ``owner``,
    and can't use the primary key. With ``owner = value`` instead, Postgres would drop ``owner``
    from the sort order.

    Args:
        before: a number or an SQL parameter. Only rows with smaller ids are selected.
        is_read_backwards: whether the index contains the ids in ascending order.
    """
    if before is not None:
        query = query.where(row_id < before)
    order = owner.desc() if is_read_backwards else owner
    return query.where(owner == any_(array([value]))).order_by(order, row_id.desc())


def select_owner_page(
    query: Q, owner: InstrumentedAttribute[Any], value: int, page_request: PageRequest
) -> Q:
    """Limit a query to one page of an owner's rows, in descending order of their ids.

    The query selects one row more than the page contains, which shows whether a next page exists.
    The table must have an index on the columns ``(owner, id DESC)``.
    """
    before = None if page_request.cursor is None else ids.parse_id_cursor(page_request.cursor)
    query = order_newest_first(query, owner, value, owner.class_.id, before=before)
    if before is None:
        query = query.offset(page_request.offset)
    return query.limit(page_request.limit + 1)


def select_page_by_id(query: Q, column: InstrumentedAttribute[int], page_request: PageRequest) -> Q:
    """Limit a query to one page of rows, sorted by descending id.

    Use this only for few matching rows, because Postgres sorts all of them for each page.
    """
    if page_request.cursor is None:
        query = query.offset(page_request.offset)
    else:
        query = query.where(column < ids.parse_id_cursor(page_request.cursor))
    return query.order_by(column.desc()).limit(page_request.limit + 1)


def select_page_by_moment(
    query: Q,
    moment: SQLColumnExpression[Any],
    column: SQLColumnExpression[Any],
    page_request: PageRequest,
) -> Q:
    """Limit a query to one page of rows that are sorted by time, and then by id."""
    if page_request.cursor is None:
        query = query.offset(page_request.offset)
    else:
        match = _MOMENT_AND_ID.match(page_request.cursor)
        if match is None:
            raise CURSOR_INVALID()
        last_moment = _EPOCH + timedelta(microseconds=int(match[1]))
        query = query.where(tuple_(moment, column) < (last_moment, int(match[2])))
    return query.order_by(moment.desc(), column.desc()).limit(page_request.limit + 1)


def build_moment_cursor(moment: datetime, row_id: int) -> str:
    return f"{(moment - _EPOCH) // timedelta(microseconds=1)}-{row_id}"


def fill_page(
    page_request: PageRequest,
    read_rows: Callable[[PageRequest], PageOfRows[T]],
    show: Callable[[list[T]], Sequence[U]],
    size_of: Callable[[U], int],
) -> PageOfRows[U]:
    """Read a page of rows, and convert the rows to response items with ``show``.

    The page contains fewer items if the response would become too large. Rows are read in small
    batches, so that only few large rows are in memory. ``size_of`` returns the bytes of an item.
    """
    items: list[U] = []
    remaining_bytes = MAX_ITEMS_BYTES
    batch_request = page_request
    while True:
        limit = min(_MAX_BATCH_ROWS, page_request.limit - len(items))
        batch_request = replace(batch_request, limit=limit)
        batch = read_rows(batch_request)
        for index, item in enumerate(show(batch.rows)):
            remaining_bytes -= size_of(item) + 1  # each item is followed by a comma of 1 byte
            if remaining_bytes < 0 and items:
                cursor = batch.cursor_after(index) if index else batch_request.cursor
                return PageOfRows(items, cursor)
            items.append(item)
        is_last = len(batch.rows) < batch_request.limit or batch.next_cursor is None
        if is_last or len(items) == page_request.limit:
            return PageOfRows(items, batch.next_cursor)
        batch_request = PageRequest(batch_request.limit, cursor=batch.next_cursor)


def read_page(uow: UnitOfWork, query: Select[T], page_request: PageRequest) -> PageOfRows[T]:
    rows = uow.session.scalars(query).all()
    return cut_page(rows, page_request.limit, lambda row: str(row.id))  # type: ignore[attr-defined]


def cut_page(rows: Sequence[T], limit: int, cursor_of: Callable[[T], str]) -> PageOfRows[T]:
    page_rows = list(rows[:limit])
    next_cursor = cursor_of(page_rows[-1]) if len(rows) > limit else None
    return PageOfRows(page_rows, next_cursor, cursor_of)
