"""The account of a user, as operators see it."""

from dataclasses import dataclass

from core import ids
from models import User
from services.access import api_keys, sessions
from services.accounts import accounts
from services.subscriptions import lists
from storage.unit_of_work import UnitOfWork

_MAX_DIGITS = len(str(ids.MAX_ID))


@dataclass(frozen=True)
class UserAccount:
    """``lists``: the slugs of those that are not archived."""

    user: User
    has_password: bool
    has_second_factor: bool
    lists: list[str]
    live_keys: int


def named(uow: UnitOfWork, name: str) -> User:
    """By an id or an address; raises ``user.not_found`` and ``email.invalid``."""
    if not (name.isascii() and name.isdigit()):
        return accounts.get_by_email(uow, name)
    # A number above all ids is no user's.
    return accounts.get(uow, min(int(name), ids.MAX_ID) if len(name) <= _MAX_DIGITS else 0)


def account_of(uow: UnitOfWork, user: User) -> UserAccount:
    return UserAccount(
        user,
        has_password=user.password_hash is not None,
        has_second_factor=sessions.is_asked(uow, user.id),
        lists=[each.slug for each in lists.choices(uow, user.id)],
        live_keys=len(api_keys.live_of(uow, user.id)),
    )
