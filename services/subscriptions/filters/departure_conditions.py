"""Builds the SQL conditions for a filter's comparisons with departures and mailings."""

from typing import Any

from sqlalchemy import ColumnElement, FromClause, Select, any_, func, or_, select, text

from models import IS_DEPARTURE, Bounce, SubscriptionEvent
from services.subscriptions.filters.names import (
    BOUNCED_MAILING_NAME,
    COMPLAINED_MAILING_NAME,
    FilterName,
    Value,
)
from services.subscriptions.members.departures import (
    LEFT_BY_MAIL_ACTIONS,
    LEFT_REASON,
    STATED_REASON,
    LeftReason,
    StatedReason,
    select_latest,
)

Condition = ColumnElement[bool]

_event = SubscriptionEvent.__table__.c


def compare_left_reason(values: tuple[Value, ...], members: FromClause) -> Condition:
    """Compare the reasons why members left. No values: match all who left."""
    left_reason = select_latest(LEFT_REASON, members)
    if not values:
        return left_reason.is_not(None)
    return _compare_reasons(values, left_reason, select_latest(STATED_REASON, members))


def build_indexed_left_reason_condition(
    values: tuple[Value, ...], members: FromClause, list_id: int | None
) -> Condition:
    departed = select(_event.user_id).where(
        _event.list_id == list_id,
        text(IS_DEPARTURE),
        _compare_reasons(values, LEFT_REASON, STATED_REASON),
    )
    return members.c.user_id == any_(func.array(departed.scalar_subquery()))


def _compare_reasons(
    values: tuple[Value, ...],
    left_reason: ColumnElement[str | None] | ColumnElement[str],
    stated_reason: ColumnElement[str | None],
) -> Condition:
    left_reasons = [each for each in values if each in set(LeftReason)]
    stated_reasons = [each for each in values if each in set(StatedReason)]
    conditions = []
    if left_reasons:
        conditions.append(left_reason.in_(left_reasons))
    if stated_reasons:
        conditions.append(stated_reason.in_(stated_reasons))
    return or_(*conditions)


def compare_mailings(
    name: FilterName, values: tuple[Value, ...], members: FromClause, list_id: int | None
) -> Condition:
    return members.c.user_id.in_(_select_users_of_mailings(name, values, list_id))


def build_indexed_mailing_condition(
    name: FilterName, values: tuple[Value, ...], members: FromClause, list_id: int | None
) -> Condition:
    users = _select_users_of_mailings(name, values, list_id)
    return members.c.user_id == any_(func.array(users.scalar_subquery()))


def _select_users_of_mailings(
    name: FilterName, values: tuple[Value, ...], list_id: int | None
) -> Select[Any]:
    if name == BOUNCED_MAILING_NAME:
        return select(Bounce.user_id).where(
            Bounce.list_id == list_id,
            Bounce.mailing_id.in_(values),
            Bounce.user_id.is_not(None),
            # If a later attempt delivered the mail, ``ended_at`` is the time of the mailing itself.
            or_(Bounce.ended_at.is_(None), Bounce.ended_at != Bounce.mailing_at),
        )
    is_complaint = name == COMPLAINED_MAILING_NAME
    return select(_event.user_id).where(
        _event.list_id == list_id,
        _event.mailing_id.in_(values),
        _event.action.in_(("complained",) if is_complaint else LEFT_BY_MAIL_ACTIONS),
    )
