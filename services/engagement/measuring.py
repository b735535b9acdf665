"""Decides whose opens and clicks a list records."""

from sqlalchemy import ColumnElement, and_, exists, false, not_

from models import EngagementAnswer, EngagementMode


def build_measured_condition(
    mode: str, list_id: ColumnElement[int], user_id: ColumnElement[int]
) -> ColumnElement[bool]:
    """The condition that a list in ``mode`` records the engagement of an active member.

    Each query that reads ``member_engagement`` needs this condition, because maintenance deletes
    the rows of other members only within an hour.
    """
    if mode == EngagementMode.OFF:
        return false()
    is_wanted = mode == EngagementMode.CONSENT
    has_answer = exists().where(
        and_(
            EngagementAnswer.list_id == list_id,
            EngagementAnswer.user_id == user_id,
            EngagementAnswer.is_allowed.is_(is_wanted),
        )
    )
    return has_answer if is_wanted else not_(has_answer)
