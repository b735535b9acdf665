"""The erasure that a reader asks for, who has no account: by a link that was mailed to them."""

from dataclasses import dataclass

from sqlalchemy import exists, select

from core.keyring import Keyring
from core.refusals.people import USER_HAS_ACCOUNT
from models import MailingList, Subscription, User
from services.erasure import marking
from storage.unit_of_work import UnitOfWork


@dataclass(frozen=True)
class ErasureReach:
    """What the person is to know beforehand.

    Attributes:
        has_account: no mailed link erases an account, which may own lists and credits.
        is_elsewhere: whether lists of other owners have them too.
    """

    has_account: bool
    is_elsewhere: bool


def reach(uow: UnitOfWork, person: User, owner_id: int) -> ErasureReach:
    elsewhere = (
        exists()
        .where(Subscription.user_id == person.id, Subscription.email.is_not(None))
        .where(MailingList.id == Subscription.list_id, MailingList.user_id != owner_id)
    )
    is_elsewhere = bool(uow.session.scalar(select(elsewhere)))
    return ErasureReach(person.password_hash is not None, is_elsewhere)


def begin(uow: UnitOfWork, keyring: Keyring, person: User) -> None:
    """As the operator's command does; raises ``user.has_account``."""
    uow.session.refresh(person, with_for_update=True)
    if person.password_hash is not None:
        raise USER_HAS_ACCOUNT()
    marking.mark(uow, keyring, person.email)
