"""Registers accounts, resets passwords and changes e-mail addresses.

Each registration, password reset and change of address is confirmed with a mailed link. A link for
a registration or a change of address is mailed to the new address, so that only the address's owner
can use the link. A person chooses the password after opening the registration link, because a
stranger may have requested the link.
"""

from datetime import datetime

from sqlalchemy import select

from core.errors import people as errors
from models import MailedLink, User
from services.access import sessions
from services.access.caller import Caller
from services.access.sessions import require_recent_login
from services.accounts import account_mails, accounts, mailed_tokens, passwords
from services.accounts.account_mails import MailKind
from services.accounts.mailed_tokens import Purpose
from services.security_events import EventType, record_event
from storage.unit_of_work import UnitOfWork, record_moment_once

MAX_USER_NAME_CHARACTERS = 200
# The condition that selects mailed links for a change of password or address.
_CHANGES_ACCESS = MailedLink.purpose.in_((Purpose.RESET_PASSWORD, Purpose.CHANGE_ADDRESS))


def read_registration_link(uow: UnitOfWork, secret: str) -> str:
    """Return the e-mail address to which a registration link was sent.

    Raises ``account_link.invalid`` for an unknown or expired link. Raises ``account_link.used`` if
    the link was already used, or if the address already has an account.
    """
    link, email = _read_link(uow, Purpose.REGISTER, secret)
    person = accounts.find_user_by_email(uow, email)
    has_account = person is not None and person.password_hash is not None
    if link.used_at is not None or has_account:
        raise errors.ACCOUNT_LINK_USED()
    return email


def register_account(uow: UnitOfWork, secret: str, *, name: str, password_hash: str) -> User:
    """Complete a registration: create an account, or set a password for a known reader.

    Raises ``account_link.invalid`` for an unknown or expired link. Raises ``account_link.used`` if
    the link was already used.
    """
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
    """Return the e-mail address to which a password reset link was sent.

    Raises ``account_link.used`` if the link was already used. Raises ``account_link.invalid`` if
    the link is unknown, or if the account's address has changed since the link was mailed.
    """
    link, email = _read_link(uow, Purpose.RESET_PASSWORD, secret)
    person = accounts.find_user_by_email(uow, email)
    if person is None or person.id != link.user_id:
        raise errors.ACCOUNT_LINK_INVALID()
    _require_unused(link)
    return email


def reset_password(uow: UnitOfWork, secret: str, *, password_hash: str) -> User:
    """Set a new password with a reset link, revoke all sessions, and notify the person by mail.

    All mailed links that could change the person's password or address become invalid. Only
    ``services.recovery`` may call ``reset_password``, because the caller must also revoke API keys
    and OAuth grants. Raises the same errors as ``read_reset_link``.
    """
    link, email = _read_link(uow, Purpose.RESET_PASSWORD, secret)
    assert link.user_id is not None
    person = _lock_person(uow, link.user_id)
    if person.email != email:
        raise errors.ACCOUNT_LINK_INVALID()
    _use_link(uow, link)
    _set_password(uow, person, password_hash, kept_session_id=None)
    record_event(uow, person.id, EventType.PASSWORD_RESET)
    return person


def change_password(
    uow: UnitOfWork, caller: Caller, *, expected: str | None, password_hash: str
) -> None:
    """Change the caller's password, and revoke all of the caller's sessions except the current one.

    ``expected`` is the password hash against which the caller's old password was verified. Raises
    ``password.changed`` if the stored password hash differs from ``expected``. Raises
    ``auth.login_again`` if the caller's last login is too old.
    """
    person = _lock_person(uow, caller.user_id)
    require_recent_login(uow, caller)
    if person.password_hash != expected:
        raise errors.PASSWORD_CHANGED()
    _set_password(uow, person, password_hash, kept_session_id=caller.session_id)
    record_event(uow, person.id, EventType.PASSWORD_CHANGED)


def set_password(uow: UnitOfWork, *, email: str, password: str) -> User:
    """Set the password of the person with the given e-mail address.

    All sessions of the person are revoked, and the person is notified by mail. Raises
    ``user.not_found`` and the same errors as ``passwords.hash_password``.
    """
    user = accounts.get_user_by_email(uow, email)
    # Hash the password before locking the person, because hashing is slow.
    password_hash = passwords.hash_password(password, user.email, user.name)
    person = _lock_person(uow, user.id)
    _set_password(uow, person, password_hash, kept_session_id=None)
    record_event(uow, person.id, EventType.PASSWORD_CHANGED)
    return person


def read_new_address_link(uow: UnitOfWork, secret: str, user_id: int) -> str:
    """Return the new e-mail address that a person confirms with a mailed link.

    Raises ``account_link.used`` if the link was already used. Raises ``account_link.invalid`` if
    the link is unknown or belongs to a different person.
    """
    link, email = _read_link(uow, Purpose.CHANGE_ADDRESS, secret)
    if link.user_id != user_id:
        raise errors.ACCOUNT_LINK_INVALID()
    _require_unused(link)
    return email


def prove_address(uow: UnitOfWork, secret: str, caller: Caller) -> tuple[User, str]:
    """Redeem a link that confirms a new address. Return the locked person and the new address.

    Raises ``auth.login_again`` and the same errors as ``read_new_address_link``.
    """
    email = read_new_address_link(uow, secret, caller.user_id)
    person = _lock_person(uow, caller.user_id)
    require_recent_login(uow, caller)
    link, _ = _read_link(uow, Purpose.CHANGE_ADDRESS, secret)
    _use_link(uow, link)
    return person, email


def change_address(
    uow: UnitOfWork, person: User, email: str, caller: Caller, *, is_visible: bool
) -> None:
    """Change an account's e-mail address, and mail an undo link to the old address.

    All of the person's sessions are revoked, except the session that changes the address. If
    ``is_visible`` is true, list owners can see their subscriber's new address. Raises
    ``account.address_taken`` if a different person has the new address.
    """
    sessions.revoke_sessions(uow, person.id, kept_session_id=caller.session_id)
    old_address = person.email
    record_moment_once(uow, MailedLink.used_at, MailedLink.user_id == person.id, _CHANGES_ACCESS)
    person.email = email
    accounts.flush_address(uow, errors.ADDRESS_TAKEN())
    accounts.record_address_change(uow, person, old_address=old_address, is_visible=is_visible)
    account_mails.enqueue_mail(uow, MailKind.ADDRESS_CHANGED, old_address, user_id=person.id)
    record_event(uow, person.id, EventType.ADDRESS_CHANGED)


def read_undo_link(uow: UnitOfWork, secret: str) -> str:
    """Return the former e-mail address that an undo link restores.

    Raises ``account_link.invalid`` for an unknown or expired link. Raises ``account_link.used`` if
    the link was already used.
    """
    link, email = _read_link(uow, Purpose.UNDO_ADDRESS, secret)
    _require_unused(link)
    return email


def prove_earlier_address(uow: UnitOfWork, secret: str) -> tuple[User, str, datetime]:
    """Redeem a link that undoes a change of address, and lock the person.

    Return the person, the address before the change, and the time of the change. Raises
    ``account_link.invalid`` for an unknown or expired link. Raises ``account_link.used`` if the
    link was already used.
    """
    link, email = _read_link(uow, Purpose.UNDO_ADDRESS, secret)
    assert link.user_id is not None
    person = _lock_person(uow, link.user_id)
    _use_link(uow, link)
    return person, email, link.created_at


def revert_address(
    uow: UnitOfWork, person: User, email: str, *, since: datetime, password_hash: str
) -> None:
    """Restore an account's former e-mail address, set a new password, and revoke all sessions.

    The links that undo address changes after ``since`` become invalid. Undo links for changes
    before ``since`` stay valid. If an intruder changed the address twice and undid the second
    change, the owner can still undo the first change. Raises ``account.address_taken`` if a
    different account has taken the former address.
    """
    person.email = email
    accounts.flush_address(uow, errors.ADDRESS_TAKEN())
    person.password_hash = password_hash
    sessions.revoke_sessions(uow, person.id)
    record_moment_once(uow, MailedLink.used_at, MailedLink.user_id == person.id, _CHANGES_ACCESS)
    record_moment_once(
        uow,
        MailedLink.used_at,
        MailedLink.user_id == person.id,
        MailedLink.purpose == Purpose.UNDO_ADDRESS,
        MailedLink.created_at > since,
    )
    record_event(uow, person.id, EventType.ADDRESS_UNDONE)


def _read_link(uow: UnitOfWork, purpose: Purpose, secret: str) -> tuple[MailedLink, str]:
    """Return the mailed link with the given secret, and its e-mail address."""
    invalid = errors.ACCOUNT_LINK_INVALID
    link = mailed_tokens.read_token(uow, purpose, secret, invalid=invalid)
    assert link.email is not None
    return link, link.email


def _require_unused(link: MailedLink) -> None:
    if link.used_at is not None:
        raise errors.ACCOUNT_LINK_USED()


def _lock_person(uow: UnitOfWork, user_id: int) -> User:
    query = select(User).where(User.id == user_id, User.erased_at.is_(None)).with_for_update()
    person = uow.session.scalar(query.execution_options(populate_existing=True))
    if person is None:
        raise errors.ACCOUNT_LINK_INVALID()
    return person


def _set_password(
    uow: UnitOfWork, person: User, password_hash: str, *, kept_session_id: int | None
) -> None:
    person.password_hash = password_hash
    sessions.revoke_sessions(uow, person.id, kept_session_id=kept_session_id)
    record_moment_once(uow, MailedLink.used_at, MailedLink.user_id == person.id, _CHANGES_ACCESS)
    account_mails.enqueue_mail_to(uow, MailKind.PASSWORD_CHANGED, person)


def _use_link(uow: UnitOfWork, link: MailedLink) -> None:
    mailed_tokens.use_token(uow, link, used=errors.ACCOUNT_LINK_USED)
