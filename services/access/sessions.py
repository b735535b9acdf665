"""Sessions: a browser in which a person is logged in, by a cookie of 256 random bits.

Only an HMAC of the cookie is stored, so a copy of the database gives no access. An ended session is
refused on the next request.
"""

import re
import secrets
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import Boolean, ColumnElement, any_, bindparam, exists, func, or_, select, update

from core import clock
from core.errors import access as errors
from core.errors.people import USER_NOT_FOUND
from core.keyring import Keyring
from core.scopes import USER_SCOPES
from models import ApiKey, Passkey, TotpSecret, User, UserSession
from services.access.caller import Caller
from services.event_origins import Credential, CredentialKind
from services.security_events import EventType, record
from storage.database import Database, Statement
from storage.unit_of_work import UnitOfWork, record_moment_once

# A stolen session that its person forgot is worth less so: no key outlives it. Keys and tokens are
# for programs, which can't log in, and are not asked. Such a request locks its person and then
# looks whether its own credential still counts. It therefore takes turns with a recovery, and no
# credential comes of one that the recovery ended.

RECENT_LOGIN = timedelta(minutes=15)


def require_recent_login(uow: UnitOfWork, caller: Caller) -> None:
    """Raises ``auth.login_again`` for a session whose login is older than a quarter of an hour."""
    if not has_recent_login(uow, caller):
        raise errors.AUTH_LOGIN_AGAIN()


def has_recent_login(uow: UnitOfWork, caller: Caller) -> bool:
    """Raises ``auth.invalid_credentials`` for a session that has ended."""
    if caller.session_id is None:
        return True
    is_recent = UserSession.logged_in_at > func.now() - RECENT_LOGIN
    is_open = (UserSession.id == caller.session_id, UserSession.ended_at.is_(None))
    is_recent_login = uow.session.scalar(select(is_recent).where(*is_open))
    if is_recent_login is None:
        raise errors.AUTH_INVALID_SESSION()
    return is_recent_login


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
        raise errors.AUTH_INVALID_API_KEY()


def has_factor() -> ColumnElement[bool]:
    """Return, of the person whose row of ``users`` the statement looks at."""
    return or_(
        exists().where(TotpSecret.user_id == User.id), exists().where(Passkey.user_id == User.id)
    )


def lacks_factor(everyone_needs_one: ColumnElement[bool]) -> ColumnElement[bool]:
    """Return whether that person needs a second factor and has none."""
    return or_(User.is_operator, everyone_needs_one) & ~has_factor()


def is_asked(uow: UnitOfWork, user_id: int) -> bool:
    """Return whether a login of this person needs a second factor: it does once they have one."""
    return uow.session.scalar(select(has_factor()).where(User.id == user_id)) is True


SESSION_LIFETIME = timedelta(days=30)
IDLE_LIFETIME = timedelta(days=14)
# The last use of a session is written at most this often, so that a busy one is no hot row.
_LAST_USE_RESOLUTION = timedelta(minutes=1)
_PURPOSE = "session"
_WELL_FORMED = re.compile(r"[A-Za-z0-9_-]{43}\Z")


def begin(uow: UnitOfWork, user_id: int, *, browser: str | None = None) -> str:
    """Begin a session; returns a new value for the cookie, never one that a browser sent."""
    value = secrets.token_urlsafe(32)
    begun = UserSession(
        user_id=user_id,
        secret_hmac=uow.settings.keyring.signer(_PURPOSE).digest(value.encode()),
        browser=browser,
        expires_at=func.now() + SESSION_LIFETIME,
    )
    uow.session.add(begun)
    uow.session.flush()
    credential = Credential(CredentialKind.SESSION, begun.id, user_id)
    record(uow, user_id, EventType.LOGIN_SUCCEEDED, credential=credential)
    return value


@dataclass(frozen=True)
class OpenSession:
    caller: Caller
    # The person needs a second factor and has none: the session opens the pages that set one up,
    # and nothing else.
    lacks_factor: bool
    is_operator: bool


def read(
    database: Database, keyring: Keyring, value: str, *, everyone_needs_factor: bool
) -> OpenSession:
    """The session of a cookie; raises ``auth.invalid_credentials``."""
    if _WELL_FORMED.match(value) is None:
        raise errors.AUTH_INVALID_SESSION()
    now = clock.now()
    digests = keyring.signer(_PURPOSE).digests(value.encode())
    bounds = {"now": now, "idle_since": now - IDLE_LIFETIME}
    rows = database.rows(
        _LIVE, digests=digests, everyone_needs_factor=everyone_needs_factor, **bounds
    )
    if not rows:
        raise errors.AUTH_INVALID_SESSION()
    [(session_id, user_id, last_used_at, lacks_factor, is_operator)] = rows
    if now - last_used_at >= _LAST_USE_RESOLUTION:
        database.rows(_NOTE_USE, session_id=session_id, now=now)
    caller = Caller(user_id, USER_SCOPES, unrestricted=True, session_id=session_id)
    return OpenSession(caller, lacks_factor, is_operator)


def authenticate(
    database: Database, keyring: Keyring, value: str, *, everyone_needs_factor: bool
) -> Caller:
    """The caller of a session cookie.

    Raises ``auth.invalid_credentials``, and ``auth.second_factor`` for a person who needs a second
    factor and has none.
    """
    session = read(database, keyring, value, everyone_needs_factor=everyone_needs_factor)
    if session.lacks_factor:
        raise errors.AUTH_SECOND_FACTOR()
    return session.caller


def list_of(uow: UnitOfWork, user_id: int, *, limit: int = 100) -> list[UserSession]:
    """The user's open sessions, the one used last first."""
    now = clock.now()
    query = select(UserSession).where(
        UserSession.user_id == user_id,
        UserSession.ended_at.is_(None),
        UserSession.expires_at > now,
        UserSession.last_used_at > now - IDLE_LIFETIME,
    )
    query = query.order_by(UserSession.last_used_at.desc(), UserSession.id.desc())
    return list(uow.session.scalars(query.limit(limit)))


def end(uow: UnitOfWork, session_id: int, *, user_id: int | None = None) -> int:
    """End a session: 1, or 0 when it had ended already. Raises ``session.not_found``."""
    session = uow.session.get(UserSession, session_id)
    if session is None or user_id not in (None, session.user_id):
        raise errors.SESSION_NOT_FOUND()
    ended = record_moment_once(uow, UserSession.ended_at, UserSession.id == session_id)
    if ended:
        record(uow, session.user_id, EventType.SESSION_ENDED, session_id=session_id)
    return ended


def end_all(uow: UnitOfWork, user_id: int, *, but: int | None = None) -> int:
    """End the user's sessions except ``but``; returns how many ended."""
    others = (UserSession.user_id == user_id, UserSession.id.is_distinct_from(but))
    ended = record_moment_once(uow, UserSession.ended_at, *others)
    if ended:
        record(uow, user_id, EventType.SESSION_ENDED, sessions=ended)
    return ended


def csrf_token(keyring: Keyring, value: str) -> str:
    """The token that shows that a form is ours, in the browser with this cookie."""
    return keyring.signer(_PURPOSE).sign(_csrf_message(value))


def is_csrf_token(keyring: Keyring, value: str, sent: str) -> bool:
    return keyring.signer(_PURPOSE).verify(_csrf_message(value), sent)


def _csrf_message(value: str) -> bytes:
    # No cookie has a colon, so this is never the message whose digest is stored.
    return b"csrf:" + value.encode()


_LIVE = Statement(
    select(
        UserSession.id,
        UserSession.user_id,
        UserSession.last_used_at,
        lacks_factor(bindparam("everyone_needs_factor", type_=Boolean)),
        User.is_operator,
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


def noting_use(row: type[UserSession] | type[ApiKey], is_it: ColumnElement[bool]) -> Statement:
    """Write when rows were used; one that another request updates is skipped: it does the same."""
    unlocked = select(row.id).where(is_it).with_for_update(skip_locked=True).scalar_subquery()
    used = update(row).where(row.id.in_(unlocked))
    return Statement(used.values(last_used_at=bindparam("now")))


_NOTE_USE = noting_use(UserSession, UserSession.id == bindparam("session_id"))
