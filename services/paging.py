"""Reads pages of rows, newest first, by an offset or by a cursor.

A page by cursor is fast at any depth. New rows don't shift the following pages.
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

# A response has at most 4 MB, including the fields next to its items.
MAX_ITEMS_BYTES = 3_990_000
# Rows are read in batches of this size, which limits the memory. A typical page is one batch.
_MAX_BATCH_ROWS = 50
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOMENT_AND_ID = re.compile(r"([0-9]{1,17})-([0-9]{1,16})\Z", re.ASCII)


@dataclass(frozen=True)
class PageRequest:
    """A request for a page of up to ``limit`` rows.

    The page begins after ``cursor``. Without a cursor, the page begins after ``offset`` rows.
    """

    limit: int
    offset: int = 0
    cursor: str | None = None


@dataclass(frozen=True)
class PageOfRows(Generic[T]):
    """A page of rows, with the cursor of the next page.

    Attributes:
        next_cursor: the cursor of the next page, or ``None`` on the last page.
        cursor_of: returns the cursor of the page that begins after a row. ``fill_page``
            calls the function if a response has no room for all rows.
    """

    rows: list[T]
    next_cursor: str | None
    cursor_of: Callable[[T], str] | None = None

    def cursor_after(self, count: int) -> str:
        """Return the cursor of the page that begins after the first ``count`` rows."""
        assert self.cursor_of is not None
        return self.cursor_of(self.rows[count - 1])


# The request for everything that a response without pages contains.
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
    """Return the query for an owner's rows in descending order of their ids.

    The query forces Postgres to use the index on the owner and the id. Postgres assumes that an
    owner's rows are spread evenly over the table. For an owner of half of all rows, Postgres would
    otherwise read the table backwards by the primary key. Postgres would then read and skip all
    newer rows of other owners, which may be ten million rows after an old import.

    The condition ``owner = ANY(ARRAY[value])`` makes ``owner`` a significant part of the order, so
    the primary key can't provide the order. With ``owner = value``, Postgres would drop ``owner``
    from the order, and either index would do.

    Args:
        owner: the column that must have this ``value``.
        before: an id, or a parameter for an id. Only rows with smaller ids are returned.
        is_read_backwards: whether ids rise in the index. Otherwise ids fall.
    """
    if before is not None:
        query = query.where(row_id < before)
    order = owner.desc() if is_read_backwards else owner
    return query.where(owner == any_(array([value]))).order_by(order, row_id.desc())


def select_owner_page(
    query: Q, owner: InstrumentedAttribute[Any], value: int, page_request: PageRequest
) -> Q:
    """Return the query for one page of an owner's rows, in descending order of their ids.

    The query returns one row more than the page has, and ``read_page`` removes the extra row. An
    index on (owner, id DESC) must exist. Raises ``cursor.invalid``.
    """
    before = None if page_request.cursor is None else ids.parse_id_cursor(page_request.cursor)
    query = order_newest_first(query, owner, value, owner.class_.id, before=before)
    if before is None:
        query = query.offset(page_request.offset)
    return query.limit(page_request.limit + 1)


def select_page_by_id(query: Q, column: InstrumentedAttribute[int], page_request: PageRequest) -> Q:
    """Return the query for one page of a small result, in descending order of the ids.

    The query returns one row more than the page has. Postgres finds all rows that meet the query's
    conditions and sorts these rows, so the result must be small.
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
    """Return the query for one page of rows whose ids don't rise with time, newest rows first.

    The query returns one row more than the page has. Rows with the same time are sorted by id.
    Raises ``cursor.invalid``.
    """
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
    """Return the cursor of the page that begins after this row, for ``select_page_by_moment``."""
    return f"{(moment - _EPOCH) // timedelta(microseconds=1)}-{row_id}"


def fill_page(
    page_request: PageRequest,
    read_rows: Callable[[PageRequest], PageOfRows[T]],
    show: Callable[[list[T]], Sequence[U]],
    size_of: Callable[[U], int],
) -> PageOfRows[U]:
    """Return a page of items that ends early if the response would become too large.

    Rows are read in small batches, so that large rows don't need much memory.

    Args:
        read_rows: returns the requested page of rows, as ``cut_page`` returns pages.
        show: returns the items for the given rows.
        size_of: returns the size of an item as JSON, in bytes.
    """
    items: list[U] = []
    remaining_bytes = MAX_ITEMS_BYTES
    batch_request = page_request
    while True:
        limit = min(_MAX_BATCH_ROWS, page_request.limit - len(items))
        batch_request = replace(batch_request, limit=limit)
        batch = read_rows(batch_request)
        for index, item in enumerate(show(batch.rows)):
            remaining_bytes -= size_of(item) + 1  # an item is followed by a comma
            if remaining_bytes < 0 and items:
                cursor = batch.cursor_after(index) if index else batch_request.cursor
                return PageOfRows(items, cursor)
            items.append(item)
        is_last = len(batch.rows) < batch_request.limit or batch.next_cursor is None
        if is_last or len(items) == page_request.limit:
            return PageOfRows(items, batch.next_cursor)
        batch_request = PageRequest(batch_request.limit, cursor=batch.next_cursor)


def read_page(uow: UnitOfWork, query: Select[T], page_request: PageRequest) -> PageOfRows[T]:
    """Run a query of ``select_owner_page`` or ``select_page_by_id``, and return the page."""
    rows = uow.session.scalars(query).all()
    return cut_page(rows, page_request.limit, lambda row: str(row.id))  # type: ignore[attr-defined]


def cut_page(rows: Sequence[T], limit: int, cursor_of: Callable[[T], str]) -> PageOfRows[T]:
    """Return a page of the first ``limit`` rows. An additional row means that a next page exists.

    ``cursor_of`` returns the cursor of the page that begins after a row.
    """
    page_rows = list(rows[:limit])
    next_cursor = cursor_of(page_rows[-1]) if len(rows) > limit else None
    return PageOfRows(page_rows, next_cursor, cursor_of)
