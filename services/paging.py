"""The rows of one owner, newest first, by the index that has the owner before the ids.

Postgres takes an owner's rows to be spread evenly over a table. Of an owner of half of all rows it
would read the table from its newest row on, in the order of the primary key, and would pass over
all that others have written since: ten million rows, where an import was long ago. A column that
equals one value has no part in an order, so that either index would do. One that is among values
has, even if it is one value, and the primary key can't give that order.
"""

from typing import Any, TypeVar

from sqlalchemy import Select, any_
from sqlalchemy.dialects.postgresql import array

Q = TypeVar("Q", bound=Select[Any])


def newest_first(
    query: Q,
    owner: Any,
    value: Any,
    row_id: Any,
    *,
    before: Any = None,
    is_read_backwards: bool = False,
) -> Q:
    """The query for the owner's rows in the falling order of their ids.

    Args:
        owner: the column of which all rows have this ``value``.
        before: an id, or a parameter for one; only rows with smaller ids are wanted.
        is_read_backwards: whether ids rise in the index. Otherwise they fall.
    """
    if before is not None:
        query = query.where(row_id < before)
    order = owner.desc() if is_read_backwards else owner
    return query.where(owner == any_(array([value]))).order_by(order, row_id.desc())
