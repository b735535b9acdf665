"""Builds the SQL conditions for a filter's comparisons with engagement."""

from typing import Any

from sqlalchemy import (
    ColumnElement,
    FromClause,
    Select,
    any_,
    exists,
    func,
    literal_column,
    or_,
    select,
)

from models import EngagementAnswer, MemberEngagement, SubscriptionStatus
from services.engagement.measuring import build_measured_condition
from services.subscriptions.filters.names import EngagementChoice, Value

Condition = ColumnElement[bool]

_row = MemberEngagement.__table__.c
_answer = EngagementAnswer.__table__.c


def has_row(condition: Condition, members: FromClause, list_id: int | None, mode: str) -> Condition:
    """The condition that a member has engagement that meets ``condition``."""
    rows = _select_users(condition, list_id, mode).where(
        _row.user_id == members.c.user_id, members.c.status == SubscriptionStatus.ACTIVE.value
    )
    # OFFSET 0 makes Postgres look up the rows of one member at a time, instead of reading the rows
    # of all members.
    return exists(rows.offset(literal_column("0")))


def build_indexed_condition(
    condition: Condition, members: FromClause, list_id: int | None, mode: str
) -> Condition:
    users = _select_users(condition, list_id, mode)
    return members.c.user_id == any_(func.array(users.scalar_subquery()))


def _select_users(condition: Condition, list_id: int | None, mode: str) -> Select[Any]:
    is_measured = build_measured_condition(mode, _row.list_id, _row.user_id)
    return select(_row.user_id).where(_row.list_id == list_id, is_measured, condition)


def compare_choices(
    values: tuple[Value, ...], members: FromClause, list_id: int | None
) -> Condition:
    answer = (
        select(_answer.is_allowed)
        .where(_answer.list_id == list_id, _answer.user_id == members.c.user_id)
        .scalar_subquery()
    )
    conditions = {
        EngagementChoice.YES: answer.is_(True),
        EngagementChoice.NO: answer.is_(False),
        EngagementChoice.NONE: answer.is_(None),
    }
    return or_(*(conditions[EngagementChoice(str(value))] for value in values))


def build_indexed_choice_condition(
    values: tuple[Value, ...], members: FromClause, list_id: int | None
) -> Condition | None:
    if EngagementChoice.NONE in values:
        return None
    users = select(_answer.user_id).where(
        _answer.list_id == list_id,
        _answer.is_allowed.in_([value == EngagementChoice.YES for value in values]),
    )
    return members.c.user_id == any_(func.array(users.scalar_subquery()))
