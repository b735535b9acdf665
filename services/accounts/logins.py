"""Counts attempts to log in, and pauses logins after failed attempts.

An attempt is counted before its password is checked, so that parallel attempts gain nothing. A
successful login clears its counts. During a pause even the right password is rejected, because
otherwise an attacker could continue to guess. Attempts during a pause are not counted and don't
extend the pause.

Several counts together keep a stranger from locking an owner out:

- The count of an address and a client has long pauses, which affect only this client.
- The count of an address has short pauses and limits an attacker with many clients.
- A known browser, in which the person has logged in before, has a separate count. The other
  counts don't apply to a known browser.
- A reader who opens a mailed password reset link clears the counts of the address.

An attacker who guesses at many accounts stays below the limits per address. Each network therefore
has a count of the accounts at which its logins failed within an hour. An account counts once,
however often its owner mistypes the password, and a successful login removes the account from the
count. Known browsers don't count for their network.
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
from services.security_events import EventType, record_event
from storage.unit_of_work import UnitOfWork

log = get_logger(__name__)

_PURPOSE = "login"
# An attempt after this time starts a new count.
ATTEMPT_RETENTION = timedelta(days=1)
SOURCE_WINDOW = timedelta(hours=1)
_SOURCE_IPV4_PREFIX = 24
# The end of the pause that is stored before the first pause. The date precedes every attempt,
# because simultaneous attempts may be counted in any sequence.
_NO_PAUSE = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class LoginThrottle:
    """The rule for the pauses after failed attempts to log in.
    The first ``free`` attempts cause no pause. Each further attempt doubles the pause, from one
    second up to ``max_pause``.
    """

    free: int
    max_pause: timedelta


CLIENT_THROTTLE = LoginThrottle(5, timedelta(minutes=15))
ADDRESS_THROTTLE = LoginThrottle(50, timedelta(minutes=1))
# An office or a mobile operator puts many people into one network. The pauses of a network are
# therefore short, and its count restarts every hour.
SOURCE_THROTTLE = LoginThrottle(50, timedelta(minutes=5))


@dataclass(frozen=True)
class Browser:
    """The browser of a login: its name, and its token from ``create_browser_token``."""

    name: str | None
    token: str | None


@dataclass(frozen=True)
class Attempt:
    """An attempt to log in.

    Attributes:
        counts: the subjects of the counts that include the attempt, with their throttles.
        from_known_browser: whether the person has logged in with this browser before.
        number: the number of attempts in a row at this address or in this known browser.
    """

    counts: tuple[tuple[bytes, LoginThrottle], ...]
    from_known_browser: bool
    number: int
    user_id: int | None = None
    password_hash: str | None = None


def create_browser_token(keyring: Keyring, person: User) -> str:
    """Return a token for a cookie, which proves that a person has logged in with this browser.

    Recovering the account invalidates the person's tokens, because an intruder may hold one.
    """
    nonce = secrets.token_urlsafe(16)
    message = _browser_message(nonce, person.email, person.recovered_at)
    return f"{nonce}.{keyring.signer(_PURPOSE).sign(message)}"


def read_browser_token(
    keyring: Keyring, email: str, recovered_at: datetime | None, token: str | None
) -> str | None:
    """Return the nonce of a valid browser token of this person, or ``None``."""
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
    """Count an attempt to log in, even at an unknown address. Raises ``login.paused``.

    Commit the transaction before checking the password.
    """
    email, person, nonce = _identify(uow, email, browser_token)
    counts = _choose_counts(uow.settings.keyring, email, client, nonce)
    numbers = [_count_attempt(uow, subject, throttle) for subject, throttle in counts]
    if nonce is None and numbers[0] == 1:
        _count_account_of_network(uow, counts[0][0], client)
    account = (person.id, person.password_hash) if person else ()
    return Attempt(counts, nonce is not None, numbers[-1], *account)


def record_failure(uow: UnitOfWork, attempt: Attempt) -> None:
    """Record a security event about a wrong password or code, for the owner of the account.

    Only the 1st, 2nd, 4th, 8th and so on failure in a row is recorded, so that a flood of attempts
    doesn't fill the table.
    """
    if attempt.password_hash is None or attempt.user_id is None:
        log.info("login.without_account")
    elif attempt.number & (attempt.number - 1) == 0:
        record_event(uow, attempt.user_id, EventType.LOGIN_FAILED, attempts=attempt.number)


def begin_code_attempt(uow: UnitOfWork, *, email: str, browser_token: str | None) -> Attempt:
    """Count an attempt to enter the code of a second factor. Raises ``login.paused``.

    All clients share one count with long pauses, because six digits can be guessed from many
    clients. This count can't lock the owner out, because only a person with the right password can
    enter a code. Attempts from a known browser are counted separately.
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
    """Return the person whose password was right, and clear the counts of the attempt.

    A mail notifies the person of a login with a new browser. If the person has a second factor,
    ``notify_of_new_browser`` sends the mail after the second step. Raises ``password.wrong`` if the
    password has changed since the check.
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
    """Notify a person by mail of a login, unless the person has used the browser before."""
    keyring = uow.settings.keyring
    if read_browser_token(keyring, person.email, person.recovered_at, browser.token) is None:
        _mail_new_browser(uow, person, browser.name)


def _mail_new_browser(uow: UnitOfWork, person: User, name: str | None) -> None:
    kind = MailKind.NEW_BROWSER
    detail = name or "a browser"
    account_mails.request_mail_to(uow, kind, person, detail)


def clear_attempt(uow: UnitOfWork, attempt: Attempt) -> None:
    """Clear the counts of an attempt after the person has proven their identity."""
    _clear_counts(uow, [subject for subject, _ in attempt.counts])


def clear_attempts_of_address(uow: UnitOfWork, *, email: str, client: str | None) -> None:
    """Clear the counts of an address whose owner has opened a mailed link."""
    counts = _choose_counts(uow.settings.keyring, email, client, None)
    _clear_counts(uow, [subject for subject, _ in counts])


def _identify(
    uow: UnitOfWork, email: str, browser_token: str | None
) -> tuple[str, User | None, str | None]:
    """Return the normalised address, its person, and the nonce of a known browser.

    A text that is not an address is counted too, so it is returned in lower case.
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
    # A client may use all addresses of its IPv6 network.
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
    """Count an account for the client's network. Raises ``login.paused``.

    The row that counts the attempts per address and client (``client_subject``) refers to the row
    of the network. A successful login deletes the first row and reduces the network's count by
    one. An attacker who logs in to an own account can therefore not clear the network's count.
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
    """Count an attempt, and return the number of attempts. Raises ``login.paused``."""
    now = clock.now()
    table = LoginAttempts
    attempts = case((table.tried_at < now - ATTEMPT_RETENTION, 1), else_=table.attempts + 1)
    doublings = func.least(attempts - throttle.free, 30)
    seconds = func.least(func.power(2, doublings), throttle.max_pause.total_seconds())
    pause_end = literal(now) + func.make_interval(0, 0, 0, 0, 0, 0, seconds)
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
