"""The reasons why members left a list, which their history contains."""

from collections.abc import Collection
from enum import StrEnum

from sqlalchemy import ColumnElement, FromClause, and_, case, not_, or_, select

from models import Subscription, SubscriptionEvent, SubscriptionStatus
from services.subscriptions.members import changes
from storage.unit_of_work import UnitOfWork


class LeftReason(StrEnum):
    UNSUBSCRIBED = "unsubscribed"
    # The person reported a mail as spam.
    COMPLAINED = "complained"
    # A bounce turned the member's mail off, or the owner imported a file of bounced addresses.
    BOUNCED = "bounced"
    REMOVED = "removed"
    ERASED = "erased"
    TRANSFERRED = "transferred"


class StatedReason(StrEnum):
    """A reason that a person can choose when unsubscribing.

    The values must not change, because the database stores them.
    """

    TOO_MANY = "too_many"
    OTHER_TOPICS = "other_topics"
    NEVER_ASKED = "never_asked"
    ELSEWHERE = "elsewhere"
    OTHER = "other"


# The actions that a mail's unsubscribe link and one-click header cause. The header only turns off
# the list's mail.
LEFT_BY_MAIL_ACTIONS = ("unsubscribed", "email_disabled")
_BOUNCE_ACTIONS = (changes.BOUNCED, changes.SOFT_BOUNCED)
_REASON_BY_ACTION = {
    "complained": LeftReason.COMPLAINED,
    **dict.fromkeys(_BOUNCE_ACTIONS, LeftReason.BOUNCED),
    "removed": LeftReason.REMOVED,
    changes.ERASED: LeftReason.ERASED,
    changes.TRANSFERRED_AWAY: LeftReason.TRANSFERRED,
}
_STATUSES_OFF_LIST = (SubscriptionStatus.UNSUBSCRIBED.value, SubscriptionStatus.REMOVED.value)
# The undo of an import takes back that a member joined, so the member didn't leave.
_IMPORT_UNDONE = "import_undone"
_event = SubscriptionEvent.__table__.c
_HAS_LEFT = and_(_event.status_after.in_(_STATUSES_OFF_LIST), _event.action != _IMPORT_UNDONE)
# These SQL expressions contain the ``LeftReason`` and the ``StatedReason`` of a departure.
LEFT_REASON: ColumnElement[str] = case(
    {action: reason.value for action, reason in _REASON_BY_ACTION.items()},
    value=_event.action,
    else_=LeftReason.UNSUBSCRIBED.value,
)
STATED_REASON: ColumnElement[str | None] = case((_event.action == "unsubscribed", _event.reason))


def get_left_reason(event: SubscriptionEvent) -> LeftReason | None:
    """Return ``None`` if the event isn't a departure."""
    has_left = event.status_after in _STATUSES_OFF_LIST and event.action != _IMPORT_UNDONE
    if event.status_before == SubscriptionStatus.ACTIVE and (
        has_left or event.action in _BOUNCE_ACTIONS
    ):
        return _REASON_BY_ACTION.get(event.action, LeftReason.UNSUBSCRIBED)
    return None


def select_latest(
    value: ColumnElement[str] | ColumnElement[str | None], members: FromClause
) -> ColumnElement[str | None]:
    """Select ``LEFT_REASON`` or ``STATED_REASON`` of each member's latest departure.

    The value is NULL for pending and active members, except active members whose mail a bounce
    turned off.
    """
    is_off_list = members.c.status.in_(_STATUSES_OFF_LIST)
    has_no_mail = and_(
        members.c.status == SubscriptionStatus.ACTIVE.value, not_(members.c.email_enabled)
    )
    turns_mail_off = and_(_event.email_enabled_before, not_(_event.email_enabled_after))
    latest = (
        select(case((or_(is_off_list, _event.action.in_(_BOUNCE_ACTIONS)), value)))
        .where(
            _event.list_id == members.c.list_id,
            _event.user_id == members.c.user_id,
            _event.status_before == SubscriptionStatus.ACTIVE.value,
            or_(_HAS_LEFT, turns_mail_off),
        )
        .order_by(_event.id.desc())
        .limit(1)
    )
    return case((or_(is_off_list, has_no_mail), latest.correlate(members).scalar_subquery()))


def read_reasons(uow: UnitOfWork, subscription_ids: Collection[int]) -> dict[int, list[str]]:
    """Return why each member left: the ``LeftReason``, and the ``StatedReason`` if there is one."""
    members = Subscription.__table__
    reasons = (select_latest(each, members) for each in (LEFT_REASON, STATED_REASON))
    query = select(members.c.id, *reasons).where(members.c.id.in_(subscription_ids))
    return {row[0]: [each for each in row[1:] if each] for row in uow.session.execute(query)}
