"""Cancels unconfirmed sign-ups."""

from collections.abc import Sequence

from sqlalchemy import delete, exists, or_, select, text

from models import Subscription, SubscriptionEvent, SubscriptionStatus
from services.subscriptions.members.changes import Actor
from storage.unit_of_work import UnitOfWork

_PENDING = SubscriptionStatus.PENDING
# The SQL condition that a subscription's status before or after an event wasn't ``pending``. Such
# an event shows that the subscription is more than an unconfirmed sign-up.
IS_MORE_THAN_REQUEST = or_(
    SubscriptionEvent.status_before != _PENDING, SubscriptionEvent.status_after != _PENDING
)
_LAPSE_REQUESTS = text("""
WITH lapsed AS (
    UPDATE subscriptions AS m SET updated_at = clock_timestamp(), submitted = NULL,
    remind_at = NULL, status = coalesce((
        SELECT e.status_before FROM subscription_events AS e
        WHERE e.list_id = m.list_id AND e.user_id = m.user_id AND e.status_after = 'pending'
            AND e.status_before IN ('unsubscribed', 'removed')
        ORDER BY e.id DESC LIMIT 1), 'removed')
    WHERE m.id = ANY(:ids) RETURNING *
)
INSERT INTO subscription_events (list_id, user_id, action, actor, via, status_before, status_after,
    email_enabled_before, email_enabled_after)
SELECT list_id, user_id, 'lapsed', :actor, :via, 'pending', status, email_enabled, email_enabled
FROM lapsed
""")


def end_requests(uow: UnitOfWork, subscription_ids: Sequence[int], actor: Actor) -> None:
    """Discard sign-ups, given the ids of their locked, pending subscriptions.

    A subscription gets its previous status again, or is deleted if the person was never a member.
    """
    of_member = (
        SubscriptionEvent.list_id == Subscription.list_id,
        SubscriptionEvent.user_id == Subscription.user_id,
    )
    was_member = or_(
        Subscription.import_id.is_not(None), exists().where(*of_member, IS_MORE_THAN_REQUEST)
    )
    is_request = Subscription.id.in_(subscription_ids)
    former = uow.session.scalars(select(Subscription.id).where(is_request, was_member)).all()
    uow.session.execute(_LAPSE_REQUESTS, {"ids": former, "actor": actor.kind, "via": actor.via})
    uow.session.execute(delete(Subscription).where(is_request, Subscription.id.not_in(former)))
