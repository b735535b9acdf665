"""Who has a second factor, and who needs one. Recovery codes alone are none: they stand for one."""

from sqlalchemy import ColumnElement, exists, or_, select

from models import Passkey, TotpSecret, User
from storage.unit_of_work import UnitOfWork


def has_factor() -> ColumnElement[bool]:
    """Of the person whose row of ``users`` the statement looks at."""
    return or_(
        exists().where(TotpSecret.user_id == User.id), exists().where(Passkey.user_id == User.id)
    )


def lacks_factor(everyone_needs_one: ColumnElement[bool]) -> ColumnElement[bool]:
    """Whether that person needs a second factor and has none."""
    return or_(User.is_operator, everyone_needs_one) & ~has_factor()


def is_asked(uow: UnitOfWork, user_id: int) -> bool:
    """Whether a login of this person needs a second factor: it does once they have one."""
    return uow.session.scalar(select(has_factor()).where(User.id == user_id)) is True
