"""Decides whose engagement a list records. These members are called measured.

The mode of the list decides about people who have not answered.
"""

from collections.abc import Collection

from sqlalchemy import ColumnElement, and_, exists, false, not_, select, text

from models import EngagementAnswer, EngagementMode, MailingList
from storage.array_texts import format_numbers
from storage.unit_of_work import UnitOfWork

_FIND_MEASURED = text("""
SELECT r.list_id, r.user_id
FROM unnest(CAST(:list_ids AS bigint[]), CAST(:user_ids AS bigint[])) AS r (list_id, user_id)
JOIN lists AS l ON l.id = r.list_id AND l.engagement <> 'off'
JOIN subscriptions AS m
    ON m.user_id = r.user_id AND m.list_id = r.list_id AND m.status = 'active'
LEFT JOIN engagement_answers AS a ON a.list_id = r.list_id AND a.user_id = r.user_id
WHERE coalesce(a.is_allowed, l.engagement = 'all')
""")


def build_measured_condition(
    mode: str, list_id: ColumnElement[int], user_id: ColumnElement[int]
) -> ColumnElement[bool]:
    """The condition that a list in ``mode`` records the engagement of an active member.

    Each query that reads ``member_engagement`` needs this condition, because maintenance deletes
    the rows of other members later.
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


def find_measured(uow: UnitOfWork, pairs: Collection[tuple[int, int]]) -> set[tuple[int, int]]:
    """Return those pairs of a list id and a user id that belong to measured members."""
    list_ids = {list_id for list_id, _ in pairs}
    is_recorded = MailingList.engagement != EngagementMode.OFF
    query = select(MailingList.id).where(MailingList.id.in_(list_ids), is_recorded)
    recorded_ids = set(uow.session.scalars(query)) if list_ids else set()
    # Most lists record nothing, so don't look up their members.
    recorded_pairs = {pair for pair in pairs if pair[0] in recorded_ids}
    if not recorded_pairs:
        return set()
    rows = uow.session.execute(_FIND_MEASURED, format_pairs(recorded_pairs))
    return {(list_id, user_id) for list_id, user_id in rows}


def format_pairs(pairs: Collection[tuple[int, int]]) -> dict[str, str]:
    """Return pairs of a list id and a user id as the SQL parameters of two arrays."""
    ordered = sorted(pairs)
    return {
        "list_ids": format_numbers(list_id for list_id, _ in ordered),
        "user_ids": format_numbers(user_id for _, user_id in ordered),
    }
