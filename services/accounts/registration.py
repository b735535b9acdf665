"""Registers accounts, resets passwords and changes e-mail addresses.

Each is confirmed with a mailed link. A link for a registration or a change of address is mailed to
the new address, so that only the address's owner can use the link. A person chooses the password
after opening the registration link, because a stranger may have requested the link.
"""

from datetime import datetime

from sqlalchemy import select

from core.errors import people as errors
from core.ids import PersonId
from models import MailedLink, User
from services.access import sessions
from services.access.caller import Caller
from services.access.sessions import require_recent_login
from services.accounts import (
    account_mails,
    accounts,
    logins,
    mailed_tokens,
    page_paths,
    passwords,
)
from services.accounts.account_mails import MailKind
from services.accounts.logins import Browser
from services.accounts.mailed_tokens import Purpose
from services.security_events import EventType, record_person_event
from storage.unit_of_work import UnitOfWork, record_moment_once

MAX_USER_NAME_CHARACTERS = 200
# The condition that selects links for a login or for a change of password or address.
_GIVES_ACCESS = MailedLink.purpose.in_(
    (Purpose.RESET_PASSWORD, Purpose.CHANGE_ADDRESS, Purpose.LOG_IN)
)


def read_registration_link(uow: UnitOfWork, secret: str) -> str:
    link, email = _read_link(uow, Purpose.REGISTER, secret)
    person = accounts.find_user_by_email(uow, email)
    has_account = person is not None and person.password_hash is not None
    if link.used_at is not None or has_account:
        raise errors.ACCOUNT_LINK_USED()
    return email


def register_account(uow: UnitOfWork, secret: str, *, name: str, password_hash: str) -> User:
    link, email = _read_link(uow, Purpose.REGISTER, secret)
    person = _lock_person(uow, accounts.find_or_create_person(uow, email).id)
    # Check the person's address again, because a simultaneous transaction may have changed the
    # address.
    if person.email != email or person.password_hash is not None:
        raise errors.ACCOUNT_LINK_USED()
    _use_link(uow, link)
    person.password_hash = password_hash
    person.name = name.strip()[:MAX_USER_NAME_CHARACTERS] or person.name
    return person


def read_reset_link(uow: UnitOfWork, secret: str) -> str:
    link, email = _read_link(uow, Purpose.RESET_PASSWORD, secret)
    person = accounts.find_user_by_email(uow, email)
    if person is None or person.id != link.user_id:
        raise errors.ACCOUNT_LINK_INVALID()
    _require_unused(link)
    return email


def reset_password(uow: UnitOfWork, secret: str, *, password_hash: str) -> User:
    """Set a new password with a reset link, revoke all sessions, and notify the person by mail.

    Mailed links that could change the password or address become invalid. Only
    ``services.recovery`` may call this function, because the caller must also revoke API keys and
    OAuth grants.
    """
    link, email = _read_link(uow, Purpose.RESET_PASSWORD, secret)
    assert link.user_id is not None
    person = _lock_person(uow, link.user_id)
    if person.email != email:
        raise errors.ACCOUNT_LINK_INVALID()
    _use_link(uow, link)
    _set_password(uow, person, password_hash, kept_session_id=None)
    record_person_event(uow, person.id, EventType.PASSWORD_RESET)
    return person


def change_password(
    uow: UnitOfWork, caller: Caller, *, expected: str | None, password_hash: str
) -> None:
    """Change the caller's password, and revoke the caller's other sessions.

    ``expected`` is the password hash against which the old password was verified.
    """
    person = _lock_person(uow, caller.person_id)
    require_recent_login(uow, caller)
    if person.password_hash != expected:
        raise errors.PASSWORD_CHANGED()
    _set_password(uow, person, password_hash, kept_session_id=caller.session_id)
    record_person_event(uow, person.id, EventType.PASSWORD_CHANGED)


def create_login_link(uow: UnitOfWork, person: User) -> str:
    """Return the URL of a page on which anyone can log in as the person once, within 30 minutes."""
    secret = mailed_tokens.create_token(
        uow, Purpose.LOG_IN, person_id=person.id, email=person.email
    )
    return page_paths.page_url(uow.settings, page_paths.LOGIN_LINK_PATH, token=secret)


def read_login_link(uow: UnitOfWork, secret: str) -> str:
    """Return the e-mail address of the link's account."""
    link, email = _read_link(uow, Purpose.LOG_IN, secret)
    _require_unused(link)
    return email


def log_in_by_link(uow: UnitOfWork, secret: str, *, browser: Browser) -> User:
    link, _ = _read_link(uow, Purpose.LOG_IN, secret)
    assert link.user_id is not None
    person = _lock_person(uow, link.user_id)
    _use_link(uow, link)
    # A person with a second factor is notified after the second step.
    if not sessions.has_second_factor(uow, person.id):
        logins.notify_of_new_browser(uow, person, browser)
    return person


def set_password(uow: UnitOfWork, *, email: str, password: str) -> User:
    """Set the password of the person with the given e-mail address.

    All sessions of the person are revoked, and the person is notified by mail.
    """
    user = accounts.get_user_by_email(uow, email)
    # Hash the password before locking the person, because hashing is slow.
    password_hash = passwords.hash_password(password, user.email, user.name)
    person = _lock_person(uow, user.id)
    _set_password(uow, person, password_hash, kept_session_id=None)
    record_person_event(uow, person.id, EventType.PASSWORD_CHANGED)
    return person


def read_new_address_link(uow: UnitOfWork, secret: str, person_id: PersonId) -> str:
    link, email = _read_link(uow, Purpose.CHANGE_ADDRESS, secret)
    if link.user_id != person_id:
        raise errors.ACCOUNT_LINK_INVALID()
    _require_unused(link)
    return email


def prove_address(uow: UnitOfWork, secret: str, caller: Caller) -> tuple[User, str]:
    """Redeem a link that confirms a new address. Return the locked person and the new address."""
    email = read_new_address_link(uow, secret, caller.person_id)
    person = _lock_person(uow, caller.person_id)
    require_recent_login(uow, caller)
    link, _ = _read_link(uow, Purpose.CHANGE_ADDRESS, secret)
    _use_link(uow, link)
    return person, email


def change_address(
    uow: UnitOfWork, person: User, email: str, caller: Caller, *, is_visible: bool
) -> None:
    """Change an account's e-mail address, and mail an undo link to the old address.

    All sessions are revoked, except the one that changes the address.
    """
    sessions.revoke_sessions(uow, person.id, kept_session_id=caller.session_id)
    old_address = person.email
    record_moment_once(uow, MailedLink.used_at, MailedLink.user_id == person.id, _GIVES_ACCESS)
    person.email = email
    accounts.flush_address(uow, errors.ADDRESS_TAKEN())
    accounts.record_address_change(uow, person, old_address=old_address, is_visible=is_visible)
    account_mails.enqueue_mail(uow, MailKind.ADDRESS_CHANGED, old_address, person_id=person.id)
    record_person_event(uow, person.id, EventType.ADDRESS_CHANGED)


def read_undo_link(uow: UnitOfWork, secret: str) -> str:
    link, email = _read_link(uow, Purpose.UNDO_ADDRESS, secret)
    _require_unused(link)
    return email


def prove_earlier_address(uow: UnitOfWork, secret: str) -> tuple[User, str, datetime]:
    """Redeem an undo link. Return the locked person, the old address and the time of change."""
    link, email = _read_link(uow, Purpose.UNDO_ADDRESS, secret)
    assert link.user_id is not None
    person = _lock_person(uow, link.user_id)
    _use_link(uow, link)
    return person, email, link.created_at


def revert_address(
    uow: UnitOfWork, person: User, email: str, *, since: datetime, password_hash: str
) -> None:
    """Restore an account's former e-mail address, set a new password, and revoke all sessions.

    The links that undo address changes after ``since`` become invalid. If an intruder changed the
    address twice and undid the second change, the owner can still undo the first change.
    """
    person.email = email
    accounts.flush_address(uow, errors.ADDRESS_TAKEN())
    person.password_hash = password_hash
    sessions.revoke_sessions(uow, person.id)
    record_moment_once(uow, MailedLink.used_at, MailedLink.user_id == person.id, _GIVES_ACCESS)
    record_moment_once(
        uow,
        MailedLink.used_at,
        MailedLink.user_id == person.id,
        MailedLink.purpose == Purpose.UNDO_ADDRESS,
        MailedLink.created_at > since,
    )
    record_person_event(uow, person.id, EventType.ADDRESS_UNDONE)


def _read_link(uow: UnitOfWork, purpose: Purpose, secret: str) -> tuple[MailedLink, str]:
    invalid = errors.ACCOUNT_LINK_INVALID
    link = mailed_tokens.read_token(uow, purpose, secret, invalid=invalid)
    assert link.email is not None
    return link, link.email


def _require_unused(link: MailedLink) -> None:
    if link.used_at is not None:
        raise errors.ACCOUNT_LINK_USED()


def _lock_person(uow: UnitOfWork, person_id: PersonId) -> User:
    query = select(User).where(User.id == person_id, User.erased_at.is_(None)).with_for_update()
    person = uow.session.scalar(query.execution_options(populate_existing=True))
    if person is None:
        raise errors.ACCOUNT_LINK_INVALID()
    return person


def _set_password(
    uow: UnitOfWork, person: User, password_hash: str, *, kept_session_id: int | None
) -> None:
    person.password_hash = password_hash
    sessions.revoke_sessions(uow, person.id, kept_session_id=kept_session_id)
    record_moment_once(uow, MailedLink.used_at, MailedLink.user_id == person.id, _GIVES_ACCESS)
    account_mails.enqueue_mail(uow, MailKind.PASSWORD_CHANGED, person)


def _use_link(uow: UnitOfWork, link: MailedLink) -> None:
    mailed_tokens.use_token(uow, link, used=errors.ACCOUNT_LINK_USED)
