"""Counts login attempts, and blocks logins for some time after failed attempts.

A login attempt is counted before the password is verified, so that parallel attempts can't bypass
the limit. A successful login resets the counters of failed attempts. During the pause after too
many failed logins, even the right password is rejected, so that an attacker can't continue
guessing. Login attempts during the pause aren't counted and don't extend the pause.

Several counters prevent a stranger from locking the owner out of an account:

- A counter per e-mail address and client causes long pauses, but only for that client.
- A counter per e-mail address causes short pauses, which slow down an attacker who uses many IP
  addresses.
- A browser in which the person has logged in before has its own counter, which a stranger's
  attempts don't affect.
- Opening a mailed password reset link resets the counters of the e-mail address.

An attacker who tries a few passwords for each of many accounts stays below the limits per e-mail
address. A counter per network counts how many accounts had failed logins within an hour, except
from known browsers. After a successful login, the account no longer counts.
"""

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import case, delete, literal, select, update
from sqlalchemy.dialects.postgresql import insert

from core import clock
from core.errors import DomainError
from core.errors.access import LOGIN_PAUSED
from core.errors.people import PASSWORD_WRONG
from core.ids import PersonId
from core.keyring import Keyring
from core.logging import get_logger
from core.networks import network_of
from core.pauses import Pauses
from models import LoginAttempts, User
from services.access import sessions
from services.accounts import account_mails, email_addresses
from services.accounts.account_mails import MailKind
from services.accounts.passwords import PasswordCheck
from services.jobs.pauses import build_pause
from services.security_events import EventType, record_person_event
from storage.unit_of_work import UnitOfWork

log = get_logger(__name__)

_PURPOSE = "login"
# A login counter starts again at 0 after this time without an attempt.
ATTEMPT_RETENTION = timedelta(days=1)
SOURCE_WINDOW = timedelta(hours=1)
_SOURCE_IPV4_PREFIX = 24
_FIRST_PAUSE = timedelta(seconds=1)
# The value of ``paused_until`` before the first pause.
_NO_PAUSE = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class LoginThrottle:
    """Pauses logins for one second after ``free`` attempts.

    The pause doubles with each further failed attempt, up to ``max_pause``.
    """

    free: int
    max_pause: timedelta


CLIENT_THROTTLE = LoginThrottle(5, timedelta(minutes=15))
ADDRESS_THROTTLE = LoginThrottle(50, timedelta(minutes=1))
# Pauses for a network are short, because many people may share a network, for example in an office.
SOURCE_THROTTLE = LoginThrottle(50, timedelta(minutes=5))


@dataclass(frozen=True)
class Browser:
    name: str | None
    token: str | None


@dataclass(frozen=True)
class Attempt:
    """A login attempt that counts against the login limits.

    Attributes:
        counts: the key of each counter that was increased, and its throttle.
        number: the number of attempts since the last successful login from the known browser or
            with the e-mail address.
    """

    counts: tuple[tuple[bytes, LoginThrottle], ...]
    from_known_browser: bool
    number: int
    user_id: PersonId | None = None
    password_hash: str | None = None


def create_browser_token(keyring: Keyring, person: User) -> str:
    """Return a cookie value that proves that the person has logged in with this browser.

    An account recovery invalidates the person's browser tokens, because an intruder may have one.
    """
    nonce = secrets.token_urlsafe(16)
    message = _browser_message(nonce, person.email, person.recovered_at)
    return f"{nonce}.{keyring.signer(_PURPOSE).sign(message)}"


def read_browser_token(
    keyring: Keyring, email: str, recovered_at: datetime | None, token: str | None
) -> str | None:
    nonce, _, signature = (token or "").partition(".")
    message = _browser_message(nonce, email, recovered_at)
    is_known = keyring.signer(_PURPOSE).verify(message, signature)
    return nonce if nonce and is_known else None


def _browser_message(nonce: str, email: str, recovered_at: datetime | None) -> bytes:
    since = "" if recovered_at is None else f"\n{clock.format_timestamp(recovered_at)}"
    return f"known\n{nonce}\n{email}{since}".encode("utf-8", "surrogatepass")


def begin_attempt(
    uow: UnitOfWork, *, email: str, client: str | None, browser_token: str | None
) -> Attempt:
    """Count a login attempt, even for an unknown e-mail address, or raise ``login.paused``.

    Commit before verifying the password, so that the attempt counts even if the process is killed.
    """
    email, person, nonce = _identify(uow, email, browser_token)
    counts = _choose_counts(uow.settings.keyring, email, client, nonce)
    numbers = [_count_attempt(uow, subject, throttle) for subject, throttle in counts]
    if nonce is None and numbers[0] == 1:
        _count_account_of_network(uow, counts[0][0], client)
    account = (person.id, person.password_hash) if person else ()
    return Attempt(counts, nonce is not None, numbers[-1], *account)


def record_failure(uow: UnitOfWork, attempt: Attempt) -> None:
    """Record a security event about a wrong password or code.

    Only the 1st, 2nd, 4th, 8th, … failed login in a row is recorded, so that an attacker can't fill
    the table.
    """
    if attempt.password_hash is None or attempt.user_id is None:
        log.info("login.without_account")
    elif attempt.number & (attempt.number - 1) == 0:
        record_person_event(uow, attempt.user_id, EventType.LOGIN_FAILED, attempts=attempt.number)


def begin_code_attempt(uow: UnitOfWork, *, email: str, browser_token: str | None) -> Attempt:
    """Count an attempt to enter a code in the second step of a login, or raise ``login.paused``.

    All unknown browsers share one counter of code attempts, because an attacker with many clients
    could otherwise guess the six-digit code. A stranger can't exhaust the counter to lock the owner
    out, because entering a code requires the right password.
    """
    email, person, nonce = _identify(uow, email, browser_token)
    kind = "code" if nonce is None else "code-browser"
    subject = _subject(uow.settings.keyring, kind, nonce or "", email)
    number = _count_attempt(uow, subject, CLIENT_THROTTLE)
    counts = ((subject, CLIENT_THROTTLE),)
    account = (person.id, person.password_hash) if person else ()
    return Attempt(counts, nonce is not None, number, *account)


def accept_password(
    uow: UnitOfWork, attempt: Attempt, check: PasswordCheck, *, browser: str | None
) -> User:
    """Return the person who entered the right password, and reset the attempt's login counters.

    A person without a second factor is notified of a login with a new browser. A person with a
    second factor is notified only after the second step. Raises ``password.wrong`` if the password
    has changed since it was verified.
    """
    is_unchanged = (User.id == attempt.user_id, User.password_hash == attempt.password_hash)
    values = {
        "password_hash": check.renewed or attempt.password_hash,
        "updated_at": User.updated_at,
    }
    statement = update(User).where(*is_unchanged).values(**values).returning(User)
    person = uow.session.scalar(statement.execution_options(synchronize_session=False))
    if person is None:
        raise PASSWORD_WRONG()
    clear_attempt(uow, attempt)
    if not attempt.from_known_browser and not sessions.has_second_factor(uow, person.id):
        _mail_new_browser(uow, person, browser)
    return person


def notify_of_new_browser(uow: UnitOfWork, person: User, browser: Browser) -> None:
    keyring = uow.settings.keyring
    if read_browser_token(keyring, person.email, person.recovered_at, browser.token) is None:
        _mail_new_browser(uow, person, browser.name)


def _mail_new_browser(uow: UnitOfWork, person: User, name: str | None) -> None:
    account_mails.enqueue_mail(
        uow,
        MailKind.NEW_BROWSER,
        person,
        name or "a browser",
        limit=account_mails.HOURLY_LIMIT,
    )


def clear_attempt(uow: UnitOfWork, attempt: Attempt) -> None:
    _clear_counts(uow, [subject for subject, _ in attempt.counts])


def clear_attempts_of_address(uow: UnitOfWork, *, email: str, client: str | None) -> None:
    counts = _choose_counts(uow.settings.keyring, email, client, None)
    _clear_counts(uow, [subject for subject, _ in counts])


def _identify(
    uow: UnitOfWork, email: str, browser_token: str | None
) -> tuple[str, User | None, str | None]:
    """Return the normalised e-mail address, its owner, and the random part of the browser token.

    An invalid address is returned in lower case, so that all its spellings share a counter.
    """
    try:
        email = email_addresses.normalise_address(email)
    except DomainError:
        email = email.replace("\0", "").strip().lower()
    person = uow.session.scalar(select(User).where(User.email == email))
    recovered_at = person.recovered_at if person else None
    nonce = read_browser_token(uow.settings.keyring, email, recovered_at, browser_token)
    return email, person, nonce


def _choose_counts(
    keyring: Keyring, email: str, client: str | None, nonce: str | None
) -> tuple[tuple[bytes, LoginThrottle], ...]:
    if nonce is not None:
        return ((_subject(keyring, "browser", nonce, email), CLIENT_THROTTLE),)
    # All addresses of an IPv6 network count as one client, because one client can use all addresses
    # of its network.
    network = network_of(client)
    client_name = "" if network is None else str(network.network_address)
    return (
        (_subject(keyring, "client", client_name, email), CLIENT_THROTTLE),
        (_subject(keyring, "address", "", email), ADDRESS_THROTTLE),
    )


def _subject(keyring: Keyring, kind: str, name: str, email: str) -> bytes:
    text = f"{kind}\n{name}\n{email}".encode("utf-8", "surrogatepass")
    return keyring.signer(_PURPOSE).digest(text)


def _count_account_of_network(uow: UnitOfWork, client_subject: bytes, client: str | None) -> None:
    """Count the account of a failed login towards the limit of the client's network.

    The row of ``client_subject`` stores which counter belongs to the network. A successful login
    only subtracts one from the network's counter, because attackers could otherwise reset it with
    their own accounts.
    """
    network = network_of(client, ipv4_prefix=_SOURCE_IPV4_PREFIX)
    if network is None:
        return
    window = int(clock.now().timestamp() // SOURCE_WINDOW.total_seconds())
    source = _subject(uow.settings.keyring, "source", f"{network} {window}", "")
    _count_attempt(uow, source, SOURCE_THROTTLE)
    is_client_count = LoginAttempts.subject == client_subject
    uow.session.execute(update(LoginAttempts).where(is_client_count).values(source=source))


def _count_attempt(uow: UnitOfWork, subject: bytes, throttle: LoginThrottle) -> int:
    now = clock.now()
    table = LoginAttempts
    attempts = case((table.tried_at < now - ATTEMPT_RETENTION, 1), else_=table.attempts + 1)
    pauses = Pauses.double(_FIRST_PAUSE, throttle.max_pause)
    pause_end = literal(now) + build_pause(pauses, attempts - throttle.free + 1)
    paused_until = case((attempts < throttle.free, table.paused_until), else_=pause_end)
    first_attempt = {"attempts": 1, "paused_until": _NO_PAUSE, "tried_at": now}
    statement = insert(table).values(subject=subject, **first_attempt)
    statement = statement.on_conflict_do_update(
        index_elements=[table.subject],
        set_={"attempts": attempts, "paused_until": paused_until, "tried_at": now},
        where=table.paused_until <= now,
    )
    number: int | None = uow.session.scalar(statement.returning(table.attempts))
    if number is None:
        until = uow.session.scalar(select(table.paused_until).where(table.subject == subject))
        remaining_seconds = 0 if until is None else round((until - now).total_seconds())
        raise LOGIN_PAUSED(retry_after=max(1, remaining_seconds))
    return number


def _clear_counts(uow: UnitOfWork, subjects: list[bytes]) -> None:
    table = LoginAttempts
    deletion = delete(table).where(table.subject.in_(subjects)).returning(table.source)
    for source in filter(None, uow.session.scalars(deletion).all()):
        decrement = update(table).where(table.subject == source)
        uow.session.execute(decrement.values(attempts=table.attempts - 1))
        uow.session.execute(delete(table).where(table.subject == source, table.attempts <= 0))
