"""Creates, finds and revokes browser sessions.

The session cookie contains 256 random bits. The database stores only the HMACs of session cookies,
so nobody can log in with a copy of the database. Revoking a session takes effect with the next
request.
"""

import re
import secrets
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import (
    BigInteger,
    Boolean,
    ColumnElement,
    and_,
    any_,
    bindparam,
    case,
    exists,
    func,
    or_,
    select,
    update,
)

from core import clock
from core.errors import access as errors
from core.errors.people import USER_NOT_FOUND
from core.errors.teams import ACCOUNT_NOT_FOUND, ACCOUNT_REQUIRED
from core.ids import AccountId, PersonId
from core.keyring import Keyring
from core.permissions import Role
from core.scopes import USER_SCOPES
from models import ApiKey, Passkey, Teammate, TotpSecret, User, UserSession
from services.access.caller import Caller
from services.event_origins import Credential, CredentialKind
from services.security_events import EventType, record_person_event
from storage.database import Database, Statement
from storage.unit_of_work import UnitOfWork, record_moment_once

# How long after a login a person can create credentials. The limit ensures that an attacker who has
# stolen an older session can't create an API key.
RECENT_LOGIN = timedelta(minutes=15)
SESSION_LIFETIME = timedelta(days=30)
IDLE_LIFETIME = timedelta(days=14)
# Store the last use of a session at most once per minute, because frequent updates of one row are
# slow.
_LAST_USE_RESOLUTION = timedelta(minutes=1)
_PURPOSE = "session"
_WELL_FORMED_COOKIE = re.compile(r"[A-Za-z0-9_-]{43}\Z")


@dataclass(frozen=True)
class OpenSession:
    """A valid session.

    ``lacks_factor`` says that the person must add a second factor before opening any other page.
    """

    caller: Caller
    lacks_factor: bool
    is_operator: bool


def require_recent_login(uow: UnitOfWork, caller: Caller) -> None:
    if not has_recent_login(uow, caller):
        raise errors.AUTH_LOGIN_AGAIN()


def has_recent_login(uow: UnitOfWork, caller: Caller) -> bool:
    """Return whether the caller's last login was at most ``RECENT_LOGIN`` ago.

    API keys and OAuth grants count as recent logins, because programs can't log in.
    """
    if caller.session_id is None:
        return True
    is_recent = UserSession.logged_in_at > func.now() - RECENT_LOGIN
    is_open = (UserSession.id == caller.session_id, UserSession.ended_at.is_(None))
    is_recent_login = uow.session.scalar(select(is_recent).where(*is_open))
    if is_recent_login is None:
        raise errors.AUTH_INVALID_SESSION()
    return is_recent_login


def lock_person(uow: UnitOfWork, person_id: PersonId) -> None:
    """Lock a person's row, or raise ``user.not_found`` for an erased person."""
    _lock_user(uow, person_id)


def lock_account(uow: UnitOfWork, account_id: AccountId) -> None:
    """Lock an account's row, or raise ``user.not_found`` if its owner was erased."""
    _lock_user(uow, account_id)


def _lock_user(uow: UnitOfWork, user_id: AccountId | PersonId) -> None:
    user = select(User.id).where(User.id == user_id, User.erased_at.is_(None))
    if uow.session.scalar(user.with_for_update(key_share=True)) is None:
        raise USER_NOT_FOUND()


def lock_caller(uow: UnitOfWork, caller: Caller) -> None:
    """Lock the caller's row in ``users``, and check that the caller may change credentials.

    The row is locked first, because a simultaneous account recovery may revoke the credential.
    """
    lock_person(uow, caller.person_id)
    require_recent_login(uow, caller)
    active_key = select(ApiKey.id).where(ApiKey.id == caller.key_id, ApiKey.revoked_at.is_(None))
    if caller.key_id is not None and uow.session.scalar(active_key) is None:
        raise errors.AUTH_INVALID_API_KEY()


def has_second_factor(uow: UnitOfWork, person_id: PersonId) -> bool:
    return uow.session.scalar(select(second_factor_exists()).where(User.id == person_id)) is True


def second_factor_exists() -> ColumnElement[bool]:
    return or_(
        exists().where(TotpSecret.user_id == User.id), exists().where(Passkey.user_id == User.id)
    )


def second_factor_missing(everyone_needs_factor: ColumnElement[bool]) -> ColumnElement[bool]:
    return or_(User.is_operator, everyone_needs_factor) & ~second_factor_exists()


def begin_session(uow: UnitOfWork, person_id: PersonId, *, browser: str | None = None) -> str:
    """Create a browser session, and return the value of the session's cookie.

    Each login creates a new cookie value, which prevents session fixation.
    """
    value = secrets.token_urlsafe(32)
    session = UserSession(
        user_id=person_id,
        secret_hmac=uow.settings.keyring.signer(_PURPOSE).digest(value.encode()),
        browser=browser,
        expires_at=func.now() + SESSION_LIFETIME,
    )
    uow.session.add(session)
    uow.session.flush()
    credential = Credential(CredentialKind.SESSION, session.id, person_id=person_id)
    record_person_event(uow, person_id, EventType.LOGIN_SUCCEEDED, credential=credential)
    return value


def read_session(
    database: Database,
    keyring: Keyring,
    value: str,
    *,
    everyone_needs_factor: bool,
    account_id: AccountId | None = None,
) -> OpenSession:
    """Return the session with the given cookie, in the account that the request names.

    By default, the account is the one with the person's id. Raises ``account.not_found`` if the
    person can't act in the named account, and ``account.required`` if the person doesn't own the
    default account.
    """
    if _WELL_FORMED_COOKIE.match(value) is None:
        raise errors.AUTH_INVALID_SESSION()
    now = clock.now()
    digests = keyring.signer(_PURPOSE).digests(value.encode())
    rows = database.rows(
        _ACTIVE_SESSION,
        digests=digests,
        everyone_needs_factor=everyone_needs_factor,
        now=now,
        idle_since=now - IDLE_LIFETIME,
        account_id=account_id,
    )
    if not rows:
        raise errors.AUTH_INVALID_SESSION()
    [(session_id, person_id, last_used_at, lacks_factor, is_operator, role)] = rows
    if now - last_used_at >= _LAST_USE_RESOLUTION:
        database.rows(_UPDATE_LAST_USE, session_id=session_id, now=now)
    if role is None:
        raise ACCOUNT_REQUIRED() if account_id is None else ACCOUNT_NOT_FOUND()
    caller = Caller(
        AccountId(person_id) if account_id is None else account_id,
        PersonId(person_id),
        USER_SCOPES,
        unrestricted=True,
        session_id=session_id,
        role=Role(role),
    )
    return OpenSession(caller, lacks_factor, is_operator)


def authenticate_session(
    database: Database,
    keyring: Keyring,
    value: str,
    *,
    everyone_needs_factor: bool,
    account_id: AccountId | None = None,
) -> Caller:
    """Return the caller whose session has the given cookie, as ``read_session`` does.

    Raises ``auth.second_factor`` if the person lacks a required second factor.
    """
    session = read_session(
        database,
        keyring,
        value,
        everyone_needs_factor=everyone_needs_factor,
        account_id=account_id,
    )
    if session.lacks_factor:
        raise errors.AUTH_SECOND_FACTOR()
    return session.caller


def list_sessions(uow: UnitOfWork, person_id: PersonId, *, limit: int = 100) -> list[UserSession]:
    now = clock.now()
    query = select(UserSession).where(
        UserSession.user_id == person_id,
        UserSession.ended_at.is_(None),
        UserSession.expires_at > now,
        UserSession.last_used_at > now - IDLE_LIFETIME,
    )
    query = query.order_by(UserSession.last_used_at.desc(), UserSession.id.desc())
    return list(uow.session.scalars(query.limit(limit)))


def revoke_session(uow: UnitOfWork, session_id: int, *, person_id: PersonId | None = None) -> int:
    """Return 1 if this call revoked the session, or 0 if the session was already revoked."""
    session = uow.session.get(UserSession, session_id)
    if session is None or person_id not in (None, session.user_id):
        raise errors.SESSION_NOT_FOUND()
    revoked_sessions = record_moment_once(uow, UserSession.ended_at, UserSession.id == session_id)
    if revoked_sessions:
        record_person_event(uow, session.user_id, EventType.SESSION_ENDED, session_id=session_id)
    return revoked_sessions


def revoke_sessions(
    uow: UnitOfWork, person_id: PersonId, *, kept_session_id: int | None = None
) -> int:
    conditions = (
        UserSession.user_id == person_id,
        UserSession.id.is_distinct_from(kept_session_id),
    )
    revoked_sessions = record_moment_once(uow, UserSession.ended_at, *conditions)
    if revoked_sessions:
        record_person_event(uow, person_id, EventType.SESSION_ENDED, sessions=revoked_sessions)
    return revoked_sessions


def create_csrf_token(keyring: Keyring, value: str) -> str:
    return keyring.signer(_PURPOSE).sign(_csrf_message(value))


def is_valid_csrf_token(keyring: Keyring, value: str, sent: str) -> bool:
    return keyring.signer(_PURPOSE).verify(_csrf_message(value), sent)


def _csrf_message(value: str) -> bytes:
    # Session cookies contain no colon, so the signed text can't equal a session cookie.
    return b"csrf:" + value.encode()


def _select_role() -> ColumnElement[str | None]:
    """Select the role of the session's person in the chosen account, or NULL."""
    account_id = func.coalesce(bindparam("account_id", type_=BigInteger), UserSession.user_id)
    of_account = Teammate.account_id == account_id
    role = select(Teammate.role).where(of_account, Teammate.person_id == UserSession.user_id)
    has_team = exists().where(of_account)
    is_own_account = and_(account_id == UserSession.user_id, ~has_team)
    return func.coalesce(role.scalar_subquery(), case((is_own_account, Role.OWNER.value)))


_ACTIVE_SESSION = Statement(
    select(
        UserSession.id,
        UserSession.user_id,
        UserSession.last_used_at,
        second_factor_missing(bindparam("everyone_needs_factor", type_=Boolean)),
        User.is_operator,
        _select_role(),
    )
    .join(User, User.id == UserSession.user_id)
    .where(
        UserSession.secret_hmac == any_(bindparam("digests")),
        UserSession.ended_at.is_(None),
        UserSession.expires_at > bindparam("now"),
        UserSession.last_used_at > bindparam("idle_since"),
        User.erased_at.is_(None),
    )
)


def build_last_use_update(
    table: type[UserSession] | type[ApiKey], condition: ColumnElement[bool]
) -> Statement:
    """Build the SQL statement that stores when a session or an API key was last used.

    The statement skips a locked row, because a simultaneous request is already updating it.
    """
    unlocked_ids = (
        select(table.id).where(condition).with_for_update(skip_locked=True).scalar_subquery()
    )
    statement = update(table).where(table.id.in_(unlocked_ids))
    return Statement(statement.values(last_used_at=bindparam("now")))


_UPDATE_LAST_USE = build_last_use_update(UserSession, UserSession.id == bindparam("session_id"))
