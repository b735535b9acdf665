from sqlalchemy import select

from core.refusals.mailing import SUBSCRIPTION_NOT_FOUND
from models import MailingList, Subscription, SubscriptionStatus
from services.mailing.subscriptions import changes
from storage.unit_of_work import UnitOfWork

MAX_SUBSCRIPTIONS = 1000
# What the person takes part in; what they left they know.
_CURRENT = (SubscriptionStatus.ACTIVE, SubscriptionStatus.PENDING)


def own_subscriptions(uow: UnitOfWork, user_id: int) -> list[tuple[Subscription, MailingList]]:
    """What the person subscribes to, newest first; at most 1,000."""
    query = (
        select(Subscription, MailingList)
        .join(MailingList, MailingList.id == Subscription.list_id)
        .where(
            Subscription.user_id == user_id,
            Subscription.status.in_(_CURRENT),
            MailingList.archived_at.is_(None),
        )
        .order_by(Subscription.id.desc())
        .limit(MAX_SUBSCRIPTIONS)
    )
    return [(each, of) for each, of in uow.session.execute(query)]


def own_subscription(uow: UnitOfWork, list_id: int, user_id: int) -> Subscription:
    """The person's record on a list, in whatever status; raises ``subscription.not_found``."""
    found = changes.find(uow, list_id, user_id)
    if found is None:
        raise SUBSCRIPTION_NOT_FOUND()
    return found
