"""Finds users for operators, and describes the users' accounts."""

from dataclasses import dataclass

from core import ids
from models import User
from services.access import api_keys, sessions
from services.accounts import accounts
from services.subscriptions import lists
from storage.unit_of_work import UnitOfWork

_MAX_ID_DIGITS = len(str(ids.MAX_ID))


@dataclass(frozen=True)
class UserAccount:
    """A user's account, with the slugs of the mailing lists that aren't archived."""

    user: User
    has_password: bool
    has_second_factor: bool
    lists: list[str]
    live_keys: int


def find_user(uow: UnitOfWork, name: str) -> User:
    if not (name.isascii() and name.isdigit()):
        return accounts.get_user_by_email(uow, name)
    # Replace a number that is too large with 0, because no user has the id 0.
    return accounts.get_user(uow, min(int(name), ids.MAX_ID) if len(name) <= _MAX_ID_DIGITS else 0)


def read_account(uow: UnitOfWork, user: User) -> UserAccount:
    return UserAccount(
        user,
        has_password=user.password_hash is not None,
        has_second_factor=sessions.has_second_factor(uow, user.id),
        lists=[mailing_list.slug for mailing_list in lists.list_choices(uow, user.id)],
        live_keys=len(api_keys.list_active_keys(uow, user.id)),
    )
