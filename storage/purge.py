"""Deletes old rows in batches that read no more than the batch and wait for no lock."""

from collections.abc import Sequence
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Select, Table, func, literal_column, select

from models.declarative import Model
from storage.unit_of_work import UnitOfWork


def select_first_places(
    model: type[Model],
    *conditions: ColumnElement[bool],
    order: Sequence[sa.SQLColumnExpression[Any]],
    limit: int,
) -> Select[Any]:
    """Return a query for the places (``ctid``) of the first rows that meet the conditions.

    An index must have this order and these conditions.
    """
    rows = select(_place(model)).select_from(model).where(*conditions)
    # Without correlate(None), a statement on the same table would absorb this query.
    return rows.order_by(*order).limit(limit).correlate(None)


def delete_rows(
    uow: UnitOfWork, model: type[Model], places: Select[Any], *conditions: ColumnElement[bool]
) -> int:
    """Delete the rows in these places that also meet the conditions; return their number.

    Rows that other transactions have locked stay.
    """
    unlocked_places = places.with_for_update(skip_locked=True)
    table = cast("Table", model.__table__)
    statement = sa.delete(table).where(is_in_places(model, unlocked_places), *conditions)
    return len(uow.session.execute(statement.returning(literal_column("1"))).all())


def is_in_places(model: type[Model], places: Select[Any]) -> ColumnElement[bool]:
    """The condition that the row is in one of these places."""
    # Postgres finds a place without an index. With any plan, it builds the array only once.
    return _place(model) == sa.any_(func.array(places.scalar_subquery()))


def _place(model: type[Model]) -> ColumnElement[Any]:
    return literal_column(f"{model.__tablename__}.ctid")
