"""Logging in, and how often that may fail.

Attempts are counted before the password is looked at, so that many at once are not more than one
after the other, and a login that succeeds clears what it counted. While there is a pause nothing is
looked at and nothing counts: a right password says nothing either, or else guessing went on
behind the pause, and whoever keeps on asking doesn't make it longer.

Three counts keep a stranger from holding an owner out. That of an address and a client has long
pauses, which are the client's own. That of an address alone, against many clients, has short
ones, and doesn't hold for a browser in which the person logged in before, which has a count of its
own. And a mailed link to a new password lets its reader in past all of them.
"""

import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import IPv6Address, ip_address
from typing import Any

from sqlalchemy import case, delete, func, literal, select, update
from sqlalchemy.dialects.postgresql import insert

from core import clock
from core.errors import DomainError
from core.keyring import Keyring
from core.refusals.access import LOGIN_PAUSED
from models import LoginAttempts, User
from services.people import accounts
from services.people.passwords import PasswordCheck
from storage.unit_of_work import UnitOfWork

# After this long without an attempt it is as if there had been none.
ATTEMPT_RETENTION = timedelta(days=1)
_PURPOSE = "login"


@dataclass(frozen=True)
class LoginThrottle:
    """After so many attempts each next one doubles the pause, from a second up to the longest."""

    free: int
    longest: timedelta


CLIENT_THROTTLE = LoginThrottle(5, timedelta(minutes=15))
ADDRESS_THROTTLE = LoginThrottle(50, timedelta(minutes=1))


@dataclass(frozen=True)
class Attempt:
    """Who would log in, and what is counted of it."""

    email: str
    counted: tuple[tuple[bytes, LoginThrottle], ...]
    user_id: int | None = None
    password_hash: str | None = None


def begin(
    uow: UnitOfWork, keyring: Keyring, *, email: str, client: str | None, known: str | None
) -> Attempt:
    """Count an attempt, whether or not the address is known; raises ``login.paused``.

    Commit it before the password is looked at. ``known`` is what ``known_browser_token`` gave the
    browser.
    """
    email = _spelt(email)
    counted = _counted(keyring, email, client, known)
    for subject, patience in counted:
        _count(uow, subject, patience)
    found = uow.session.execute(
        select(User.id, User.password_hash).where(User.email == email)
    ).one_or_none()
    if found is None:
        return Attempt(email, counted)
    return Attempt(email, counted, found.id, found.password_hash)


def succeed(uow: UnitOfWork, attempt: Attempt, verdict: PasswordCheck) -> int | None:
    """Let the person in: their id, or ``None`` if the password was changed meanwhile."""
    assert attempt.user_id is not None
    assert verdict.matches
    kept = verdict.renewed or attempt.password_hash
    statement = (
        update(User)
        .where(User.id == attempt.user_id, User.password_hash == attempt.password_hash)
        .values(password_hash=kept, updated_at=User.updated_at)
        .returning(User.id)
        .execution_options(synchronize_session=False)
    )
    user_id = uow.session.scalar(statement)
    if user_id is not None:
        clear(uow, attempt)
    return user_id


def clear(uow: UnitOfWork, attempt: Attempt) -> None:
    """Forget what was counted for who turned out to be who they say."""
    _clear(uow, [subject for subject, _ in attempt.counted])


def reset_attempts(uow: UnitOfWork, keyring: Keyring, *, email: str, client: str | None) -> None:
    """Forget what failed for this address: its reader has proven themselves by mail."""
    _clear(uow, [subject for subject, _ in _counted(keyring, email, client, None)])


def known_browser_token(keyring: Keyring, email: str) -> str:
    """What the browser keeps to show that this person logged in there."""
    nonce = secrets.token_urlsafe(16)
    return f"{nonce}.{keyring.signer(_PURPOSE).sign(_known_message(nonce, _spelt(email)))}"


def _spelt(email: str) -> str:
    """One spelling of what was typed, which need not be an address to be counted."""
    try:
        return accounts.normalise_email(email.strip())
    except DomainError:
        return email.replace("\0", "").strip().lower()


def _counted(
    keyring: Keyring, email: str, client: str | None, known: str | None
) -> tuple[tuple[bytes, LoginThrottle], ...]:
    nonce, _, signature = (known or "").partition(".")
    if nonce and keyring.signer(_PURPOSE).verify(_known_message(nonce, email), signature):
        return ((_subject(keyring, "browser", nonce, email), CLIENT_THROTTLE),)
    return (
        (_subject(keyring, "client", _network(client), email), CLIENT_THROTTLE),
        (_subject(keyring, "address", "", email), ADDRESS_THROTTLE),
    )


def _known_message(nonce: str, email: str) -> bytes:
    return f"known\n{nonce}\n{email}".encode("utf-8", "surrogatepass")


def _subject(keyring: Keyring, kind: str, who: str, email: str) -> bytes:
    return keyring.signer(_PURPOSE).digest(
        f"{kind}\n{who}\n{email}".encode("utf-8", "surrogatepass")
    )


def _network(client: str | None) -> str:
    """A client's address; of IPv6 the network, since a client has all the addresses in one."""
    try:
        address = ip_address(client or "")
    except ValueError:
        return ""
    if isinstance(address, IPv6Address) and address.ipv4_mapped is None:
        return address.exploded[:19]
    return str(address)


def _count(uow: UnitOfWork, subject: bytes, patience: LoginThrottle) -> None:
    now = clock.now()
    kept = LoginAttempts
    attempts = case((kept.tried_at < now - ATTEMPT_RETENTION, 1), else_=kept.attempts + 1)
    first: dict[str, Any] = {"attempts": 1, "paused_until": now, "tried_at": now}
    next_one = {"attempts": attempts, "paused_until": _pause(now, attempts, patience)}
    statement = (
        insert(kept)
        .values(subject=subject, **first)
        .on_conflict_do_update(
            index_elements=[kept.subject],
            set_={**next_one, "tried_at": now},
            where=kept.paused_until <= now,
        )
        .returning(kept.subject)
    )
    if uow.session.scalar(statement) is None:
        until = uow.session.scalar(select(kept.paused_until).where(kept.subject == subject))
        raise _paused(until or now, now)


def _pause(now: datetime, attempts: Any, patience: LoginThrottle) -> Any:
    beyond = func.least(attempts - patience.free, 30)
    seconds = func.least(func.power(2, beyond), patience.longest.total_seconds())
    later = literal(now) + func.make_interval(0, 0, 0, 0, 0, 0, seconds)
    return case((attempts < patience.free, now), else_=later)


def _paused(until: datetime, now: datetime) -> DomainError:
    seconds = max(1, round((until - now).total_seconds()))
    return LOGIN_PAUSED(retry_after=seconds)


def _clear(uow: UnitOfWork, subjects: list[bytes]) -> None:
    uow.session.execute(delete(LoginAttempts).where(LoginAttempts.subject.in_(subjects)))
