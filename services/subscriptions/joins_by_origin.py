"""Reads where the members who joined a list came from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, case, func, select

from models import LANDINGS_AND_DELTAS, ORIGINS_AND_DELTAS
from services.subscriptions.daily_figures import DayRange, FiguresBy
from storage.unit_of_work import UnitOfWork


@dataclass(frozen=True)
class OriginFigures:
    """``by``: ``REFERRER`` in figures by UTM source, if the members have no UTM source."""

    by: FiguresBy
    key: str
    joined: int
    left: int


@dataclass(frozen=True)
class JoinsByOrigin:
    """The most frequent origins.

    ``joined`` counts all members of known origin who joined in other ways than by an import.
    """

    largest: Sequence[OriginFigures]
    joined: int


def read_joins_by_origin(
    uow: UnitOfWork, list_id: int, days: DayRange, by: FiguresBy, limit: int
) -> JoinsByOrigin:
    """Return the most frequent origins of members who joined in other ways than by an import.

    In figures by UTM source, members without a UTM source count under the referrer.
    """
    origins = LANDINGS_AND_DELTAS.c if by is FiguresBy.LANDING else ORIGINS_AND_DELTAS.c
    value: ColumnElement[Any] = origins[by.value]
    has_value = value != ""
    if by is FiguresBy.UTM_SOURCE:
        value = case((has_value, value), else_=origins.referrer)
    daily = (
        select(
            has_value.label("is_named"),
            value.label("key"),
            func.sum(origins.joined).label("joined"),
            func.sum(origins.gone).label("gone"),
            func.sum(origins.imported).label("imported"),
        )
        .where(
            origins.list_id == list_id,
            origins.day.between(days.first, days.last),
            value != "",
        )
        .group_by("is_named", "key", origins.day)
        .subquery()
        .c
    )
    # The undo of an import from before migration 0145 makes the number of imported members
    # negative.
    joined_sum = func.sum(func.greatest(daily.joined - func.greatest(daily.imported, 0), 0))
    # Postgres computes window functions before LIMIT, so ``all_joined`` also counts the origins
    # that LIMIT removes from the result.
    all_joined = func.sum(joined_sum).over()
    query = (
        select(daily.is_named, daily.key, joined_sum, func.sum(daily.gone), all_joined)
        .group_by(daily.is_named, daily.key)
        .having(joined_sum > 0)
        .order_by(joined_sum.desc(), daily.key)
        .limit(limit)
    )
    rows = uow.session.execute(query).all()
    largest = [
        OriginFigures(
            by if row_is_named else FiguresBy.REFERRER,
            str(row_key),
            int(joined_count),
            int(left_count),
        )
        for row_is_named, row_key, joined_count, left_count, _ in rows
    ]
    return JoinsByOrigin(largest, int(rows[0][4]) if rows else 0)
