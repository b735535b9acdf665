"""What callers show before they make credentials or change their account: a recent login.

A stolen session that its person forgot is worth less so: no key outlives it. Keys and tokens are
for programs, which can't log in, and are not asked.

Such a request locks its person and then looks whether its own credential still counts. So it takes
turns with a recovery, and no credential comes of one that the recovery ended.
"""

from datetime import timedelta

from sqlalchemy import func, select

from core.refusals.access import AUTH_INVALID_API_KEY, AUTH_INVALID_SESSION, AUTH_LOGIN_AGAIN
from core.refusals.people import USER_NOT_FOUND
from models import ApiKey, User, UserSession
from services.access.caller import Caller
from storage.unit_of_work import UnitOfWork

RECENT_LOGIN = timedelta(minutes=15)


def require_recent_login(uow: UnitOfWork, caller: Caller) -> None:
    """Raises ``auth.login_again`` for a session whose login is older than a quarter of an hour."""
    if not has_recent_login(uow, caller):
        raise AUTH_LOGIN_AGAIN()


def has_recent_login(uow: UnitOfWork, caller: Caller) -> bool:
    """Raises ``auth.invalid_credentials`` for a session that has ended."""
    if caller.session_id is None:
        return True
    is_recent = UserSession.logged_in_at > func.now() - RECENT_LOGIN
    is_open = (UserSession.id == caller.session_id, UserSession.ended_at.is_(None))
    found = uow.session.scalar(select(is_recent).where(*is_open))
    if found is None:
        raise AUTH_INVALID_SESSION()
    return found


def lock_person(uow: UnitOfWork, user_id: int) -> None:
    """Lock the person until the transaction ends; raises ``user.not_found`` for an erased one."""
    person = select(User.id).where(User.id == user_id, User.erased_at.is_(None))
    if uow.session.scalar(person.with_for_update(key_share=True)) is None:
        raise USER_NOT_FOUND()


def lock_maker(uow: UnitOfWork, caller: Caller) -> None:
    """Lock the person of a caller who makes a credential.

    Raises ``auth.login_again``, and ``auth.invalid_credentials`` when the caller's own credential
    ended in the meantime.
    """
    lock_person(uow, caller.user_id)
    require_recent_login(uow, caller)
    is_live = select(ApiKey.id).where(ApiKey.id == caller.key_id, ApiKey.revoked_at.is_(None))
    if caller.key_id is not None and uow.session.scalar(is_live) is None:
        raise AUTH_INVALID_API_KEY()
