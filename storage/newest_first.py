"""The rows of one owner, newest first, by the index that has the owner before the ids.

Postgres takes an owner's rows to be spread evenly over a table. Of an owner of half of all rows it
would read the table from its newest row on, in the order of the primary key, and would pass over
all that others have written since: ten million rows, where an import was long ago. A column that
equals one value has no part in an order, so that either index would do. One that has a least and a
greatest value has, and the primary key can't give that order.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Select, tuple_
from sqlalchemy.orm import InstrumentedAttribute

Q = TypeVar("Q", bound=Select[Any])


def newest_first(
    query: Q,
    owner: Mapping[Any, Any],
    row_id: ColumnElement[int] | InstrumentedAttribute[int],
    *,
    before: object = None,
) -> Q:
    """The query for the owner's rows in the falling order of their ids.

    Args:
        owner: the columns of an index before the id, in its order, and the value of each.
        before: an id, or a parameter for one; only rows with smaller ids are wanted.
    """
    columns, values = tuple(owner), tuple(owner.values())
    if before is None:
        is_not_past = tuple_(*columns) <= tuple_(*values)
    else:
        is_not_past = tuple_(*columns, row_id) < tuple_(*values, before)
    order = [each.desc() for each in (*columns, row_id)]
    return query.where(tuple_(*columns) >= tuple_(*values), is_not_past).order_by(*order)
