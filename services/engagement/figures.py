"""Counts the members of a list by their answer and by their last open or click."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import select, text

from models import EngagementMode, MailingList, active_count
from storage.unit_of_work import UnitOfWork


class ActivityKey(StrEnum):
    """When active members last opened or clicked a mail.

    A number is a period in days. Each member counts only in the shortest period that fits.
    """

    DAYS_30 = "30"
    DAYS_90 = "90"
    DAYS_180 = "180"
    DAYS_365 = "365"
    OLDER = "older"
    NEVER = "never"  # The member received mails, but opened and clicked none.
    UNKNOWN = "unknown"  # The list recorded no delivery.


@dataclass(frozen=True)
class EngagementFigures:
    """Figures about the active members of a list.

    Attributes:
        answers: the number of members by answer: ``yes``, ``no`` or ``none``.
        would_delete: the number of members whose engagement another mode would delete, or ``None``
            without another mode.
    """

    mode: EngagementMode
    answers: Mapping[str, int]
    activity: Mapping[ActivityKey, int]
    would_delete: int | None


_COUNT_ANSWERS = text("""
SELECT count(*) FILTER (WHERE a.is_allowed), count(*) FILTER (WHERE NOT a.is_allowed)
FROM engagement_answers AS a JOIN subscriptions AS m
    ON m.user_id = a.user_id AND m.list_id = a.list_id AND m.status = 'active'
WHERE a.list_id = :list_id
""")
_COUNT_ACTIVITY = text("""
SELECT (CURRENT_TIMESTAMP AT TIME ZONE 'UTC')::date - greatest(last_opened, last_clicked) AS days,
    delivered > 0 AS is_delivered, count(*) AS members,
    count(*) FILTER (WHERE NOT coalesce(is_allowed, :new_mode = 'all') OR :new_mode = 'off')
        AS deleted
FROM member_engagement AS e LEFT JOIN engagement_answers AS a USING (list_id, user_id)
WHERE list_id = :list_id AND :mode <> 'off' AND coalesce(is_allowed, :mode = 'all')
GROUP BY 1, 2
""")


def read_figures(
    uow: UnitOfWork, mailing_list: MailingList, new_mode: EngagementMode | None = None
) -> EngagementFigures:
    """Count the members. ``new_mode``: the mode for ``would_delete``."""
    count = select(active_count(MailingList.id)).where(MailingList.id == mailing_list.id)
    active = uow.session.scalar(count) or 0
    list_id = {"list_id": mailing_list.id}
    yes, no = uow.session.execute(_COUNT_ANSWERS, list_id).one()
    mode = EngagementMode(mailing_list.engagement)
    values = list_id | {"mode": mode, "new_mode": new_mode or mode}
    activity = dict.fromkeys(ActivityKey, 0)
    deleted = 0
    for row in uow.session.execute(_COUNT_ACTIVITY, values):
        activity[_choose_key(row.days, is_delivered=row.is_delivered)] += row.members
        deleted += row.deleted
    # Members without a row are unknown too.
    activity[ActivityKey.UNKNOWN] = 0
    activity[ActivityKey.UNKNOWN] = max(0, active - sum(activity.values()))
    answers = {"yes": yes, "no": no, "none": max(0, active - yes - no)}
    return EngagementFigures(mode, answers, activity, None if new_mode is None else deleted)


def _choose_key(days: int | None, *, is_delivered: bool) -> ActivityKey:
    if days is None:
        return ActivityKey.NEVER if is_delivered else ActivityKey.UNKNOWN
    periods = (key for key in ActivityKey if key.isdigit())
    return next((key for key in periods if days <= int(key)), ActivityKey.OLDER)
