"""Pages of rows, newest first: by an offset, or by the cursor of the page before.

A page by cursor costs the same at any depth, and rows that are made meanwhile move nothing on it.
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

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOMENT_AND_ID = re.compile(r"([0-9]{1,17})-([0-9]{1,16})\Z", re.ASCII)


@dataclass(frozen=True)
class PageRequest:
    """The rows that are asked for: at most ``limit``, after a ``cursor``, else ``offset`` rows."""

    limit: int
    offset: int = 0
    cursor: str | None = None


@dataclass(frozen=True)
class PageOfRows(Generic[T]):
    """A page of rows, with the cursor of the next page.

    Attributes:
        next_cursor: of the next page; ``None`` at the end.
        cursor_of: the cursor of the page after a row, where a page may be filled with fewer rows.
    """

    rows: list[T]
    next_cursor: str | None
    cursor_of: Callable[[T], str] | None = None

    def cursor_after(self, count: int) -> str:
        """Return the cursor of the page after so many of the rows."""
        assert self.cursor_of is not None
        return self.cursor_of(self.rows[count - 1])


# As much as an answer without pages holds.
WHOLE = PageRequest(1000)
# An answer has at most 4 MB, with what it says beside its items.
MAX_ITEMS_BYTES = 3_990_000
# A page of the usual size is read at once, and no more than so many rows are in memory.
_ROWS_AT_ONCE = 50


def newest_first(
    query: Q,
    owner: Any,
    value: Any,
    row_id: Any,
    *,
    before: Any = None,
    is_read_backwards: bool = False,
) -> Q:
    """The query for an owner's rows in the falling order of their ids, by the index of both.

    Postgres takes an owner's rows to be spread evenly over a table. For an owner of half of all
    rows it would read the table from its newest row on, in the order of the primary key, and would
    pass over all that others have written since: ten million rows, where an import was long ago. A
    column that equals one value has no part in an order, so that either index would do. A column
    that is among values has a part, even if it is one value, and the primary key can't give that
    order.

    Args:
        owner: the column of which all rows have this ``value``.
        before: an id, or a parameter for one; only rows with smaller ids are wanted.
        is_read_backwards: whether ids rise in the index. Otherwise they fall.
    """
    if before is not None:
        query = query.where(row_id < before)
    order = owner.desc() if is_read_backwards else owner
    return query.where(owner == any_(array([value]))).order_by(order, row_id.desc())


def of_owner(query: Q, owner: InstrumentedAttribute[Any], value: int, wanted: PageRequest) -> Q:
    """Return the query for one page of an owner's rows, in descending order of their ids.

    The query returns one row more than the page has, and ``read`` removes the extra row. The query
    needs an index on (owner, id DESC). Raises ``cursor.invalid``.
    """
    before = None if wanted.cursor is None else ids.parse_id_cursor(wanted.cursor)
    query = newest_first(query, owner, value, owner.class_.id, before=before)
    if before is None:
        query = query.offset(wanted.offset)
    return query.limit(wanted.limit + 1)


def by_id(query: Q, column: InstrumentedAttribute[int], wanted: PageRequest) -> Q:
    """Return the query for one page of a small result, in descending order of the ids.

    The query returns one row more than the page has. Postgres finds all rows that meet the query's
    conditions and sorts these rows, so the result must be small.
    """
    if wanted.cursor is None:
        query = query.offset(wanted.offset)
    else:
        query = query.where(column < ids.parse_id_cursor(wanted.cursor))
    return query.order_by(column.desc()).limit(wanted.limit + 1)


def by_moment(
    query: Q,
    moment: SQLColumnExpression[Any],
    column: SQLColumnExpression[Any],
    wanted: PageRequest,
) -> Q:
    """Return the query for one page of rows whose ids don't rise with time, newest rows first.

    The query returns one row more than the page has. Rows with the same time are sorted by id.
    Raises ``cursor.invalid``.
    """
    if wanted.cursor is None:
        query = query.offset(wanted.offset)
    else:
        match = _MOMENT_AND_ID.match(wanted.cursor)
        if match is None:
            raise CURSOR_INVALID()
        last = _EPOCH + timedelta(microseconds=int(match[1]))
        query = query.where(tuple_(moment, column) < (last, int(match[2])))
    return query.order_by(moment.desc(), column.desc()).limit(wanted.limit + 1)


def moment_cursor(moment: datetime, row_id: int) -> str:
    """The cursor of the page after this row, for ``by_moment``."""
    return f"{(moment - _EPOCH) // timedelta(microseconds=1)}-{row_id}"


def fill(
    wanted: PageRequest,
    read: Callable[[PageRequest], PageOfRows[T]],
    show: Callable[[list[T]], Sequence[U]],
    size_of: Callable[[U], int],
) -> PageOfRows[U]:
    """Return a page of shown items that ends early where it would be larger than an answer may be.

    Rows are read few at a time, so that the memory is bounded however large they are.

    Args:
        read: gives the page that it is asked for, as ``cut`` makes it.
        show: makes an item of each row.
        size_of: the bytes of an item as JSON.
    """
    items: list[U] = []
    room, asked = MAX_ITEMS_BYTES, wanted
    while True:
        asked = replace(asked, limit=min(_ROWS_AT_ONCE, wanted.limit - len(items)))
        found = read(asked)
        for index, item in enumerate(show(found.rows)):
            room -= size_of(item) + 1  # and a comma
            if room < 0 and items:
                return PageOfRows(items, found.cursor_after(index) if index else asked.cursor)
            items.append(item)
        is_over = len(found.rows) < asked.limit or found.next_cursor is None
        if is_over or len(items) == wanted.limit:
            return PageOfRows(items, found.next_cursor)
        asked = PageRequest(asked.limit, cursor=found.next_cursor)


def read(uow: UnitOfWork, query: Select[T], wanted: PageRequest) -> PageOfRows[T]:
    """Read the page that ``of_owner`` or ``by_id`` made a query for, of rows with an ``id``."""
    found = uow.session.scalars(query).all()
    return cut(found, wanted.limit, lambda row: str(row.id))  # type: ignore[attr-defined]


def cut(rows: Sequence[T], limit: int, cursor_of: Callable[[T], str]) -> PageOfRows[T]:
    """Cut off the row that shows a next page; ``cursor_of`` names the page after a row."""
    shown = list(rows[:limit])
    return PageOfRows(shown, cursor_of(shown[-1]) if len(rows) > limit else None, cursor_of)
