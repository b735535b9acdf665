"""Logins, and the pauses after failed attempts.

An attempt is counted before its password is checked, so that parallel attempts gain nothing, and a
login that succeeds clears its counts. During a pause no password is checked and no attempt is
counted: a right password is refused too, or else an attacker could guess on during the pause, and
more attempts don't make the pause longer.

Separate counts keep a stranger from locking an owner out. The count of an address and a client has
long pauses, which hold for that client alone. The count of an address alone, against many clients,
has short pauses. It does not hold for a browser in which the person logged in before, which has a
count of its own. And a mailed link to a new password clears the counts for its reader.

Guesses at many accounts make no single count grow. Each network therefore has a count of the
accounts at which logins from it failed within an hour, with pauses that hold for that network's
next accounts. An account counts there once however often its person mistypes, and not once they are
in. Known browsers are outside of it.
"""

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import case, delete, func, literal, select, update
from sqlalchemy.dialects.postgresql import insert

from core import clock
from core.errors import DomainError
from core.errors.access import LOGIN_PAUSED
from core.errors.people import PASSWORD_WRONG
from core.keyring import Keyring
from core.logging import get_logger
from core.networks import network_of
from models import LoginAttempts, User
from services.access import sessions
from services.accounts import account_mails, email_addresses
from services.accounts.account_mails import MailKind
from services.accounts.passwords import PasswordCheck
from services.security_events import EventType, record
from storage.unit_of_work import UnitOfWork

log = get_logger(__name__)

# The signer's, which logins share.
PURPOSE = "login"


def known_browser_token(keyring: Keyring, person: User) -> str:
    """A token for the browser's cookie: it shows that this person logged in there before.

    It ends when the person takes their account back, since the browser may be an intruder's.
    """
    nonce = secrets.token_urlsafe(16)
    message = _message(nonce, person.email, person.recovered_at)
    return f"{nonce}.{keyring.signer(PURPOSE).sign(message)}"


def known_nonce(
    keyring: Keyring, email: str, recovered_at: datetime | None, known: str | None
) -> str | None:
    """The nonce of a browser in which the person logged in before; ``known``: its token."""
    nonce, _, signature = (known or "").partition(".")
    message = _message(nonce, email, recovered_at)
    is_known = keyring.signer(PURPOSE).verify(message, signature)
    return nonce if nonce and is_known else None


def _message(nonce: str, email: str, recovered_at: datetime | None) -> bytes:
    since = "" if recovered_at is None else f"\n{clock.format_timestamp(recovered_at)}"
    return f"known\n{nonce}\n{email}{since}".encode("utf-8", "surrogatepass")


# After this long without an attempt the count starts again.
ATTEMPT_RETENTION = timedelta(days=1)


@dataclass(frozen=True)
class LoginThrottle:
    """After ``free`` attempts each next one doubles the pause, from a second to ``max_pause``."""

    free: int
    max_pause: timedelta


CLIENT_THROTTLE = LoginThrottle(5, timedelta(minutes=15))
ADDRESS_THROTTLE = LoginThrottle(50, timedelta(minutes=1))
# Many people share the network of an office or a mobile operator. Its pauses are therefore short,
# and its count begins anew with the next hour.
SOURCE_THROTTLE = LoginThrottle(50, timedelta(minutes=5))
SOURCE_WINDOW = timedelta(hours=1)
_SOURCE_IPV4_PREFIX = 24
# Before any attempt's time: those of one moment may be counted in another order than they came in,
# and none of them may take the time of another for the end of a pause.
_UNPAUSED = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Browser:
    """The browser of a login: its name, and its ``known_browser_token``."""

    name: str | None
    known: str | None


@dataclass(frozen=True)
class Attempt:
    """An attempt to log in, and the counts that it is part of."""

    counted: tuple[tuple[bytes, LoginThrottle], ...]
    # The person logged in with this browser before.
    from_known_browser: bool
    # How many there were in a row, with this one: at this address, or in this known browser.
    number: int
    user_id: int | None = None
    password_hash: str | None = None


def begin(uow: UnitOfWork, *, email: str, client: str | None, known: str | None) -> Attempt:
    """Count an attempt, whether or not the address is known; raises ``login.paused``.

    Commit it before the password is checked. ``known`` is the browser's ``known_browser_token``.
    """
    email, person, nonce = _find(uow, email, known)
    counted = _counted(uow.settings.keyring, email, client, nonce)
    numbers = [_count(uow, subject, throttle) for subject, throttle in counted]
    if nonce is None and numbers[0] == 1:
        _count_at_source(uow, counted[0][0], client)
    who = (person.id, person.password_hash) if person else ()
    return Attempt(counted, nonce is not None, numbers[-1], *who)


def fail(uow: UnitOfWork, attempt: Attempt) -> None:
    """Record for the account's owner that the password, or a code, was wrong.

    Only the 1st, 2nd, 4th, 8th … in a row is an event, so that no flood fills the table.
    """
    if attempt.password_hash is None or attempt.user_id is None:
        log.info("login.without_account")
    elif attempt.number & (attempt.number - 1) == 0:
        record(uow, attempt.user_id, EventType.LOGIN_FAILED, attempts=attempt.number)


def begin_code(uow: UnitOfWork, *, email: str, known: str | None) -> Attempt:
    """Count an attempt to show a code of a second factor; raises ``login.paused``.

    All clients share one count with long pauses, or else six digits could be guessed from many. A
    stranger gets here by the right password alone, so none can keep the person out by guessing;
    and a browser in which the person logged in before has a count of its own here too.
    """
    email, person, nonce = _find(uow, email, known)
    kind = "code" if nonce is None else "code-browser"
    subject = _subject(uow.settings.keyring, kind, nonce or "", email)
    number = _count(uow, subject, CLIENT_THROTTLE)
    counted = ((subject, CLIENT_THROTTLE),)
    who = (person.id, person.password_hash) if person else ()
    return Attempt(counted, nonce is not None, number, *who)


def succeed(
    uow: UnitOfWork, attempt: Attempt, check: PasswordCheck, *, browser: str | None
) -> User:
    """The person whose password was right; a mail tells them of a browser that is new.

    The mail waits for the second step, where there is one. Raises ``password.wrong`` if the
    password was changed since the check.
    """
    as_checked = User.id == attempt.user_id, User.password_hash == attempt.password_hash
    values = {
        "password_hash": check.renewed or attempt.password_hash,
        "updated_at": User.updated_at,
    }
    statement = update(User).where(*as_checked).values(**values).returning(User)
    person = uow.session.scalar(statement.execution_options(synchronize_session=False))
    if person is None:
        raise PASSWORD_WRONG()
    clear(uow, attempt)
    if not attempt.from_known_browser and not sessions.is_asked(uow, person.id):
        _mail_browser(uow, person, browser)
    return person


def tell_of_browser(uow: UnitOfWork, person: User, browser: Browser) -> None:
    """Mail the person that they logged in with this browser, if it is new to them."""
    if known_nonce(uow.settings.keyring, person.email, person.recovered_at, browser.known) is None:
        _mail_browser(uow, person, browser.name)


def _mail_browser(uow: UnitOfWork, person: User, name: str | None) -> None:
    kind = MailKind.NEW_BROWSER
    detail = name or "a browser"
    account_mails.request_mail_to(uow, kind, person, detail)


def clear(uow: UnitOfWork, attempt: Attempt) -> None:
    """Clear the counts of an attempt whose person proved who they are."""
    _clear(uow, [subject for subject, _ in attempt.counted])


def reset_attempts(uow: UnitOfWork, *, email: str, client: str | None) -> None:
    """Clear the counts of this address: its reader has proven by mail that it is theirs."""
    _clear(uow, [subject for subject, _ in _counted(uow.settings.keyring, email, client, None)])


def _find(uow: UnitOfWork, email: str, known: str | None) -> tuple[str, User | None, str | None]:
    """The typed text, address or not, in one spelling; its person; a known browser's nonce."""
    try:
        email = email_addresses.normalise_address(email)
    except DomainError:
        email = email.replace("\0", "").strip().lower()
    person = uow.session.scalar(select(User).where(User.email == email))
    recovered_at = person.recovered_at if person else None
    return email, person, known_nonce(uow.settings.keyring, email, recovered_at, known)


def _counted(
    keyring: Keyring, email: str, client: str | None, nonce: str | None
) -> tuple[tuple[bytes, LoginThrottle], ...]:
    if nonce is not None:
        return ((_subject(keyring, "browser", nonce, email), CLIENT_THROTTLE),)
    # All of an IPv6 network, which one client may use.
    network = network_of(client)
    who = "" if network is None else str(network.network_address)
    return (
        (_subject(keyring, "client", who, email), CLIENT_THROTTLE),
        (_subject(keyring, "address", "", email), ADDRESS_THROTTLE),
    )


def _subject(keyring: Keyring, kind: str, who: str, email: str) -> bytes:
    counted = f"{kind}\n{who}\n{email}".encode("utf-8", "surrogatepass")
    return keyring.signer(PURPOSE).digest(counted)


def _count_at_source(uow: UnitOfWork, first: bytes, client: str | None) -> None:
    """Count an account at which the client has not failed lately; raises ``login.paused``.

    ``first``: the count of the two, which remembers the source's. A success takes back what it
    added, and no more: else an attacker with an account of their own could clear the source.
    """
    network = network_of(client, ipv4_prefix=_SOURCE_IPV4_PREFIX)
    if network is None:
        return
    window = int(clock.now().timestamp() // SOURCE_WINDOW.total_seconds())
    source = _subject(uow.settings.keyring, "source", f"{network} {window}", "")
    _count(uow, source, SOURCE_THROTTLE)
    is_first = LoginAttempts.subject == first
    uow.session.execute(update(LoginAttempts).where(is_first).values(source=source))


def _count(uow: UnitOfWork, subject: bytes, throttle: LoginThrottle) -> int:
    """Count an attempt; returns how many there are. Raises ``login.paused``."""
    now = clock.now()
    kept = LoginAttempts
    attempts = case((kept.tried_at < now - ATTEMPT_RETENTION, 1), else_=kept.attempts + 1)
    beyond = func.least(attempts - throttle.free, 30)
    seconds = func.least(func.power(2, beyond), throttle.max_pause.total_seconds())
    later = literal(now) + func.make_interval(0, 0, 0, 0, 0, 0, seconds)
    paused_until = case((attempts < throttle.free, kept.paused_until), else_=later)
    first = {"attempts": 1, "paused_until": _UNPAUSED, "tried_at": now}
    counted = insert(kept).values(subject=subject, **first)
    counted = counted.on_conflict_do_update(
        index_elements=[kept.subject],
        set_={"attempts": attempts, "paused_until": paused_until, "tried_at": now},
        where=kept.paused_until <= now,
    )
    number: int | None = uow.session.scalar(counted.returning(kept.attempts))
    if number is None:
        until = uow.session.scalar(select(kept.paused_until).where(kept.subject == subject))
        seconds_left = 0 if until is None else round((until - now).total_seconds())
        raise LOGIN_PAUSED(retry_after=max(1, seconds_left))
    return number


def _clear(uow: UnitOfWork, subjects: list[bytes]) -> None:
    table = LoginAttempts
    cleared = delete(table).where(table.subject.in_(subjects)).returning(table.source)
    for source in filter(None, uow.session.scalars(cleared).all()):
        fewer = update(table).where(table.subject == source).values(attempts=table.attempts - 1)
        uow.session.execute(fewer)
        uow.session.execute(delete(table).where(table.subject == source, table.attempts <= 0))
