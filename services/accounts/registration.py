"""Registers accounts, resets passwords and changes addresses by mailed links.

A link is mailed to the address that is registered or changed. Only the owner of the address can
therefore turn a reader's record into an account. The person types the password after opening the
link, because otherwise a stranger could choose the password of another person's account.
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
# The condition that a link changes the password or the address of an account.
_CHANGES_ACCESS = MailedLink.purpose.in_((Purpose.RESET_PASSWORD, Purpose.CHANGE_ADDRESS))


def read_registration_link(uow: UnitOfWork, secret: str) -> str:
    """Return the address that a registration link registers, without using the link up.

    Raises ``account_link.invalid``. Raises ``account_link.used`` if the link has been used or the
    address has an account.
    """
    link, email = _read_link(uow, Purpose.REGISTER, secret)
    person = accounts.find_user_by_email(uow, email)
    has_account = person is not None and person.password_hash is not None
    if link.used_at is not None or has_account:
        raise errors.ACCOUNT_LINK_USED()
    return email


def register_account(uow: UnitOfWork, secret: str, *, name: str, password_hash: str) -> User:
    """Create an account, or set the first password of an existing person.

    Raises ``account_link.invalid`` and ``account_link.used``.
    """
    link, email = _read_link(uow, Purpose.REGISTER, secret)
    person = _lock_person(uow, accounts.find_or_create_person(uow, email).id)
    # A person who has just been erased has lost the address, so the address needs a new link.
    if person.email != email or person.password_hash is not None:
        raise errors.ACCOUNT_LINK_USED()
    _use_link(uow, link)
    person.password_hash = password_hash
    person.name = name.strip()[:MAX_USER_NAME_CHARACTERS] or person.name
    return person


def read_reset_link(uow: UnitOfWork, secret: str) -> str:
    """Return the account's address that a password reset link contains, without using the link up.

    Raises ``account_link.used``. Raises ``account_link.invalid`` if the link is invalid or the
    account's address has changed.
    """
    link, email = _read_link(uow, Purpose.RESET_PASSWORD, secret)
    person = accounts.find_user_by_email(uow, email)
    if person is None or person.id != link.user_id:
        raise errors.ACCOUNT_LINK_INVALID()
    _require_unused(link)
    return email


def reset_password(uow: UnitOfWork, secret: str, *, password_hash: str) -> User:
    """Set a new password by a mailed link, revoke all sessions, and notify the person by mail.

    The person's other links to a new password or a new address stop working. Call this function
    only through ``services.recovery``, which also revokes keys and grants. Raises
    ``account_link.invalid`` and ``account_link.used``.
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
    """Set a new password, and revoke all sessions except the caller's session.

    ``expected`` is the hash of the password that the caller has just proven. Raises
    ``auth.login_again``. Raises ``password.changed`` if the account has another hash by now.
    """
    person = _lock_person(uow, caller.user_id)
    require_recent_login(uow, caller)
    if person.password_hash != expected:
        raise errors.PASSWORD_CHANGED()
    _set_password(uow, person, password_hash, kept_session_id=caller.session_id)
    record_event(uow, person.id, EventType.PASSWORD_CHANGED)


def set_password(uow: UnitOfWork, *, email: str, password: str) -> User:
    """Set a person's password on behalf of the operator.

    All sessions of the person are revoked, and a mail notifies the person. Raises
    ``user.not_found`` and every error of ``passwords.hash_password``.
    """
    user = accounts.get_user_by_email(uow, email)
    # Hash the password before locking the person, because hashing is slow.
    password_hash = passwords.hash_password(password, user.email, user.name)
    person = _lock_person(uow, user.id)
    _set_password(uow, person, password_hash, kept_session_id=None)
    record_event(uow, person.id, EventType.PASSWORD_CHANGED)
    return person


def read_new_address_link(uow: UnitOfWork, secret: str, user_id: int) -> str:
    """Return the new address that a link confirms, without using the link up.

    Raises ``account_link.used``. Raises ``account_link.invalid`` if the link is invalid or belongs
    to another person.
    """
    link, email = _read_link(uow, Purpose.CHANGE_ADDRESS, secret)
    if link.user_id != user_id:
        raise errors.ACCOUNT_LINK_INVALID()
    _require_unused(link)
    return email


def prove_address(uow: UnitOfWork, secret: str, caller: Caller) -> tuple[User, str]:
    """Use up the link that confirms a new address, and return the locked person and the address.

    Raises ``auth.login_again`` and every error of ``read_new_address_link``.
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
    """Change the account's address, and mail an undo link to the old address.

    All sessions except the caller's session are revoked. ``is_visible`` means that owners of lists
    see the new address. Raises ``account.address_taken`` if another person has taken the address.
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
    """Return the former address that an undo link restores, without using the link up.

    Raises ``account_link.invalid`` and ``account_link.used``.
    """
    link, email = _read_link(uow, Purpose.UNDO_ADDRESS, secret)
    _require_unused(link)
    return email


def prove_earlier_address(uow: UnitOfWork, secret: str) -> tuple[User, str, datetime]:
    """Use up the link that undoes a change of address.

    Return the locked person, the person's former address, and the time of the change. Raises
    ``account_link.invalid`` and ``account_link.used``.
    """
    link, email = _read_link(uow, Purpose.UNDO_ADDRESS, secret)
    assert link.user_id is not None
    person = _lock_person(uow, link.user_id)
    _use_link(uow, link)
    return person, email, link.created_at


def revert_address(
    uow: UnitOfWork, person: User, email: str, *, since: datetime, password_hash: str
) -> None:
    """Restore the account's former address, set a new password, and revoke all sessions.

    Undo links that were mailed after the change at ``since`` stop working. Undo links of earlier
    changes still work. Otherwise an intruder could change the address twice and undo the second
    change, so that the person could no longer undo the first change. Raises
    ``account.address_taken`` if another account has the address.
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
    """Return a mailed link and its address."""
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
