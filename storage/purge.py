"""Deletes old rows in batches, without reading other rows or waiting for locks."""

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
    """Build a query for the locations (``ctid``) of the first rows that meet the conditions.

    The query is fast only if an index matches its order and conditions.
    """
    rows = select(_place(model)).select_from(model).where(*conditions)
    # Without correlate(None), SQLAlchemy would merge the query into an enclosing statement.
    return rows.order_by(*order).limit(limit).correlate(None)


def delete_rows(
    uow: UnitOfWork, model: type[Model], places: Select[Any], *conditions: ColumnElement[bool]
) -> int:
    """Skip rows that are locked by other transactions, and return the number of deleted rows."""
    unlocked_places = places.with_for_update(skip_locked=True)
    table = cast("Table", model.__table__)
    statement = sa.delete(table).where(is_in_places(model, unlocked_places), *conditions)
    return len(uow.session.execute(statement.returning(literal_column("1"))).all())


def is_in_places(model: type[Model], places: Select[Any]) -> ColumnElement[bool]:
    # Postgres needs no index to find a row by its ``ctid``. The subquery returns an array, because
    # Postgres runs an array subquery only once.
    return _place(model) == sa.any_(func.array(places.scalar_subquery()))


def _place(model: type[Model]) -> ColumnElement[Any]:
    return literal_column(f"{model.__tablename__}.ctid")
