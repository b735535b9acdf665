"""Deletes of old rows in batches that read no more than the batch, and wait for no lock."""

from collections.abc import Sequence
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Select, Table, func, literal_column, select

from models.declarative import Model
from storage.unit_of_work import UnitOfWork


def first(
    model: type[Model],
    *conditions: ColumnElement[bool],
    order: Sequence[sa.SQLColumnExpression[Any]],
    limit: int,
) -> Select[Any]:
    """The places of the first rows that fit. An index must have this order and these conditions."""
    rows = select(_place(model)).select_from(model).where(*conditions)
    # A query of its own, inside a statement on the same table too.
    return rows.order_by(*order).limit(limit).correlate(None)


def among(model: type[Model], places: Select[Any]) -> ColumnElement[bool]:
    """The row is in one of these places."""
    # A place is found without an index, and the array is made once, whatever the plan.
    return _place(model) == sa.any_(func.array(places.scalar_subquery()))


def purge(
    uow: UnitOfWork, model: type[Model], places: Select[Any], *conditions: ColumnElement[bool]
) -> int:
    """Delete the rows in these places that also fit the conditions; how many they were.

    Rows that other transactions have locked stay.
    """
    free = places.with_for_update(skip_locked=True)
    table = cast("Table", model.__table__)
    statement = sa.delete(table).where(among(model, free), *conditions)
    return len(uow.session.execute(statement.returning(literal_column("1"))).all())


def _place(model: type[Model]) -> ColumnElement[Any]:
    return literal_column(f"{model.__tablename__}.ctid")
