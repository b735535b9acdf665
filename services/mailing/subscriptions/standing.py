from dataclasses import dataclass

from models import MailingList, Subscription, SubscriptionStatus, User
from services.mailing.subscriptions import changes, locks
from storage.unit_of_work import UnitOfWork


@dataclass(frozen=True)
class LockedSubscription:
    """How a person stands with a list, while nobody else can change it."""

    mailing_list: MailingList
    person: User
    record: Subscription | None

    @property
    def is_active(self) -> bool:
        return self.record is not None and self.record.status == SubscriptionStatus.ACTIVE


def lock_subscription(
    uow: UnitOfWork, mailing_list: MailingList, person: User
) -> LockedSubscription | None:
    """Read it under the pair's lock, which holds until the transaction ends.

    ``None`` when the person was erased: then there is nothing to be decided about them.
    """
    if not locks.lock_pair(uow, person.id, mailing_list.id):
        return None
    return LockedSubscription(mailing_list, person, changes.find(uow, mailing_list.id, person.id))
