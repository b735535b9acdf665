"""Logins, and the pauses after failed attempts.

An attempt is counted before its password is checked, so that parallel attempts gain nothing, and a
login that succeeds clears its counts. During a pause no password is checked and no attempt is
counted: a right password is refused too, or else an attacker could guess on during the pause, and
more attempts don't make the pause longer.

Separate counts keep a stranger from locking an owner out. The count of an address and a client has
long pauses, which hold for that client alone. The count of an address alone, against many clients,
has short pauses. It does not hold for a browser in which the person logged in before, which has a
count of its own. And a mailed link to a new password clears the counts for its reader.
"""

import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import IPv6Address, ip_address

from sqlalchemy import case, delete, func, literal, select, update
from sqlalchemy.dialects.postgresql import insert

from core import clock
from core.errors import DomainError
from core.keyring import Keyring
from core.refusals.access import LOGIN_PAUSED
from core.refusals.people import PASSWORD_WRONG
from models import LoginAttempts, User
from services.people import account_mails, email_addresses
from services.people.account_mails import MailKind
from services.people.passwords import PasswordCheck
from storage.unit_of_work import UnitOfWork

# After this long without an attempt the count starts again.
ATTEMPT_RETENTION = timedelta(days=1)
_PURPOSE = "login"


@dataclass(frozen=True)
class LoginThrottle:
    """After ``free`` attempts each next one doubles the pause, from a second to ``max_pause``."""

    free: int
    max_pause: timedelta


CLIENT_THROTTLE = LoginThrottle(5, timedelta(minutes=15))
ADDRESS_THROTTLE = LoginThrottle(50, timedelta(minutes=1))


@dataclass(frozen=True)
class Attempt:
    """An attempt to log in, and the counts that it is part of."""

    counted: tuple[tuple[bytes, LoginThrottle], ...]
    # Whether the person logged in with this browser before.
    from_known_browser: bool
    user_id: int | None = None
    password_hash: str | None = None


def begin(
    uow: UnitOfWork, keyring: Keyring, *, email: str, client: str | None, known: str | None
) -> Attempt:
    """Count an attempt, whether or not the address is known; raises ``login.paused``.

    Commit it before the password is checked. ``known`` is the browser's ``known_browser_token``.
    """
    email = _spelt(email)
    person = uow.session.scalar(select(User).where(User.email == email))
    nonce = _known_nonce(keyring, email, person.recovered_at if person else None, known)
    counted = _counted(keyring, email, client, nonce)
    for subject, throttle in counted:
        _count(uow, subject, throttle)
    if person is None:
        return Attempt(counted, from_known_browser=False)
    return Attempt(counted, nonce is not None, person.id, person.password_hash)


def succeed(
    uow: UnitOfWork,
    attempt: Attempt,
    check: PasswordCheck,
    *,
    browser: str | None,
    request_id: str | None,
) -> User:
    """The person who logs in; a mail tells them of a browser that is new.

    Raises ``password.wrong`` if the password was changed since the check.
    """
    statement = (
        update(User)
        .where(User.id == attempt.user_id, User.password_hash == attempt.password_hash)
        .values(password_hash=check.renewed or attempt.password_hash, updated_at=User.updated_at)
        .returning(User)
        .execution_options(synchronize_session=False)
    )
    person = uow.session.scalar(statement)
    if person is None:
        raise PASSWORD_WRONG()
    clear(uow, attempt)
    if not attempt.from_known_browser:
        account_mails.request_mail(
            uow,
            MailKind.NEW_BROWSER,
            person.email,
            user_id=person.id,
            detail=browser or "a browser",
            request_id=request_id,
        )
    return person


def clear(uow: UnitOfWork, attempt: Attempt) -> None:
    """Clear the counts of an attempt whose person proved who they are."""
    _clear(uow, [subject for subject, _ in attempt.counted])


def reset_attempts(uow: UnitOfWork, keyring: Keyring, *, email: str, client: str | None) -> None:
    """Clear the counts of this address: its reader has proven by mail that it is theirs."""
    _clear(uow, [subject for subject, _ in _counted(keyring, email, client, None)])


def known_browser_token(keyring: Keyring, person: User) -> str:
    """A token for the browser's cookie: it shows that this person logged in there before.

    It ends when the person takes their account back, since the browser may be an intruder's.
    """
    nonce = secrets.token_urlsafe(16)
    message = _known_message(nonce, person.email, person.recovered_at)
    return f"{nonce}.{keyring.signer(_PURPOSE).sign(message)}"


def _spelt(email: str) -> str:
    """One spelling of the typed text, which is counted even when it is no address."""
    try:
        return email_addresses.normalise(email.strip())
    except DomainError:
        return email.replace("\0", "").strip().lower()


def _counted(
    keyring: Keyring, email: str, client: str | None, nonce: str | None
) -> tuple[tuple[bytes, LoginThrottle], ...]:
    if nonce is not None:
        return ((_subject(keyring, "browser", nonce, email), CLIENT_THROTTLE),)
    return (
        (_subject(keyring, "client", _network(client), email), CLIENT_THROTTLE),
        (_subject(keyring, "address", "", email), ADDRESS_THROTTLE),
    )


def _known_nonce(
    keyring: Keyring, email: str, recovered_at: datetime | None, known: str | None
) -> str | None:
    """The nonce of a browser in which the person logged in before."""
    nonce, _, signature = (known or "").partition(".")
    message = _known_message(nonce, email, recovered_at)
    is_known = keyring.signer(_PURPOSE).verify(message, signature)
    return nonce if nonce and is_known else None


def _known_message(nonce: str, email: str, recovered_at: datetime | None) -> bytes:
    since = "" if recovered_at is None else f"\n{clock.iso(recovered_at)}"
    return f"known\n{nonce}\n{email}{since}".encode("utf-8", "surrogatepass")


def _subject(keyring: Keyring, kind: str, who: str, email: str) -> bytes:
    return keyring.signer(_PURPOSE).digest(
        f"{kind}\n{who}\n{email}".encode("utf-8", "surrogatepass")
    )


def _network(client: str | None) -> str:
    """The client's IP address; for IPv6 its /64 network, all of which one client may use."""
    try:
        address = ip_address(client or "")
    except ValueError:
        return ""
    if isinstance(address, IPv6Address) and address.ipv4_mapped is None:
        return address.exploded[:19]
    return str(address)


def _count(uow: UnitOfWork, subject: bytes, throttle: LoginThrottle) -> None:
    now = clock.now()
    kept = LoginAttempts
    attempts = case((kept.tried_at < now - ATTEMPT_RETENTION, 1), else_=kept.attempts + 1)
    beyond = func.least(attempts - throttle.free, 30)
    seconds = func.least(func.power(2, beyond), throttle.max_pause.total_seconds())
    later = literal(now) + func.make_interval(0, 0, 0, 0, 0, 0, seconds)
    paused_until = case((attempts < throttle.free, now), else_=later)
    statement = (
        insert(kept)
        .values(subject=subject, attempts=1, paused_until=now, tried_at=now)
        .on_conflict_do_update(
            index_elements=[kept.subject],
            set_={"attempts": attempts, "paused_until": paused_until, "tried_at": now},
            where=kept.paused_until <= now,
        )
        .returning(kept.subject)
    )
    if uow.session.scalar(statement) is None:
        until = uow.session.scalar(select(kept.paused_until).where(kept.subject == subject))
        left = 0 if until is None else round((until - now).total_seconds())
        raise LOGIN_PAUSED(retry_after=max(1, left))


def _clear(uow: UnitOfWork, subjects: list[bytes]) -> None:
    uow.session.execute(delete(LoginAttempts).where(LoginAttempts.subject.in_(subjects)))
