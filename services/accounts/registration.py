"""Registration, password reset and change of address, each by a mailed token.

The token is mailed to the address that the change is about. Only a person who was subscribed or
imported can therefore take over their own record. The password is typed after the link is opened,
so no stranger can set one that the address's owner then confirms.
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
from services.security_events import EventType, record
from storage.unit_of_work import UnitOfWork, record_moment_once

MAX_USER_NAME_CHARACTERS = 200
_CHANGING = MailedLink.purpose.in_((Purpose.RESET_PASSWORD, Purpose.CHANGE_ADDRESS))


def read_registration(uow: UnitOfWork, secret: str) -> str:
    """The address that a link would register; changes nothing.

    Raises ``account_link.invalid``, or ``account_link.used`` when the address has an account.
    """
    opened, email = _open(uow, Purpose.REGISTER, secret)
    person = accounts.find_by_email(uow, email)
    has_account = person is not None and person.password_hash is not None
    if opened.used_at is not None or has_account:
        raise errors.ACCOUNT_LINK_USED()
    return email


def register(uow: UnitOfWork, secret: str, *, name: str, password_hash: str) -> User:
    """Make the account, or set a person's first password; raises as ``read_registration``."""
    opened, email = _open(uow, Purpose.REGISTER, secret)
    person = _lock_person(uow, accounts.find_or_create_person(uow, email).id)
    # A person who was just erased no longer has the address, which then needs a new link.
    if person.email != email or person.password_hash is not None:
        raise errors.ACCOUNT_LINK_USED()
    _use(uow, opened)
    person.password_hash = password_hash
    person.name = name.strip()[:MAX_USER_NAME_CHARACTERS] or person.name
    return person


def read_reset(uow: UnitOfWork, secret: str) -> str:
    """The address of the account whose password a link would set; changes nothing.

    Raises ``account_link.invalid``, also when the account has another address by now, and
    ``account_link.used``.
    """
    opened, email = _open(uow, Purpose.RESET_PASSWORD, secret)
    person = accounts.find_by_email(uow, email)
    if person is None or person.id != opened.user_id:
        raise errors.ACCOUNT_LINK_INVALID()
    return _unused(opened, email)


def reset(uow: UnitOfWork, secret: str, *, password_hash: str) -> User:
    """Set a new password, end all sessions, and mail a notice; raises what ``read_reset`` raises.

    The person's other links to a new password or a new address stop working. Call it through
    ``services.recovery``, which ends the rest.
    """
    opened, email = _open(uow, Purpose.RESET_PASSWORD, secret)
    assert opened.user_id is not None
    person = _lock_person(uow, opened.user_id)
    if person.email != email:
        raise errors.ACCOUNT_LINK_INVALID()
    _use(uow, opened)
    _set_password(uow, person, password_hash, but=None)
    record(uow, person.id, EventType.PASSWORD_RESET)
    return person


def change_password(
    uow: UnitOfWork, caller: Caller, *, expected: str | None, password_hash: str
) -> None:
    """Set a new password in place of the one that was checked, and end other sessions.

    Raises ``auth.login_again``, and ``password.changed`` when the account's password was changed
    since the check.
    """
    person = _lock_person(uow, caller.user_id)
    require_recent_login(uow, caller)
    if person.password_hash != expected:
        raise errors.PASSWORD_CHANGED()
    _set_password(uow, person, password_hash, but=caller.session_id)
    record(uow, person.id, EventType.PASSWORD_CHANGED)


def set_password(uow: UnitOfWork, *, email: str, password: str) -> User:
    """Set a person's password as the operator, end their sessions, and mail a notice."""
    user = accounts.get_by_email(uow, email)
    # Before the lock: it takes a while.
    password_hash = passwords.make(password, user.email, user.name)
    person = _lock_person(uow, user.id)
    _set_password(uow, person, password_hash, but=None)
    record(uow, person.id, EventType.PASSWORD_CHANGED)
    return person


def read_new_address(uow: UnitOfWork, secret: str, user_id: int) -> str:
    """The address that a link would give this person's account; changes nothing.

    Raises ``account_link.invalid``, also for another person's link, and ``account_link.used``.
    """
    opened, email = _open(uow, Purpose.CHANGE_ADDRESS, secret)
    if opened.user_id != user_id:
        raise errors.ACCOUNT_LINK_INVALID()
    return _unused(opened, email)


def prove_address(uow: UnitOfWork, secret: str, caller: Caller) -> tuple[User, str]:
    """Use up a link to a new address; returns the locked person and the address."""
    email = read_new_address(uow, secret, caller.user_id)
    person = _lock_person(uow, caller.user_id)
    require_recent_login(uow, caller)
    _use(uow, _open(uow, Purpose.CHANGE_ADDRESS, secret)[0])
    return person, email


def change_address(
    uow: UnitOfWork, person: User, email: str, caller: Caller, *, shown: bool
) -> None:
    """Change the account's address, end other sessions, and mail an undo link to the old address.

    Raises ``account.address_taken`` if another person gets the address at the same time.
    """
    sessions.end_all(uow, person.id, but=caller.session_id)
    old_address = person.email
    record_moment_once(uow, MailedLink.used_at, MailedLink.user_id == person.id, _CHANGING)
    person.email = email
    accounts.flush_address(uow, errors.ADDRESS_TAKEN())
    accounts.note_move(uow, person, left=old_address, shown=shown)
    account_mails.enqueue_mail(uow, MailKind.ADDRESS_CHANGED, old_address, user_id=person.id)
    record(uow, person.id, EventType.ADDRESS_CHANGED)


def read_undo(uow: UnitOfWork, secret: str) -> str:
    """The address that a link would give back to its account; raises as ``read_new_address``."""
    opened, email = _open(uow, Purpose.UNDO_ADDRESS, secret)
    return _unused(opened, email)


def prove_earlier_address(uow: UnitOfWork, secret: str) -> tuple[User, str, datetime]:
    """Use up a link that undoes a change of address; raises what ``read_undo`` raises.

    Returns the person, locked, their earlier address, and when it was changed.
    """
    opened, email = _open(uow, Purpose.UNDO_ADDRESS, secret)
    assert opened.user_id is not None
    person = _lock_person(uow, opened.user_id)
    _use(uow, opened)
    return person, email, opened.created_at


def revert_address(
    uow: UnitOfWork, person: User, email: str, *, since: datetime, password_hash: str
) -> None:
    """Restore the account's earlier address, set another password, and end all sessions.

    Links that were mailed after the change stop working. Undo links of earlier changes still work.
    Otherwise an intruder could change the address twice and undo the second change, and the person
    could no longer undo the first change. Raises ``account.address_taken`` if another account has
    the address.
    """
    person.email = email
    accounts.flush_address(uow, errors.ADDRESS_TAKEN())
    person.password_hash = password_hash
    sessions.end_all(uow, person.id)
    record_moment_once(uow, MailedLink.used_at, MailedLink.user_id == person.id, _CHANGING)
    record_moment_once(
        uow,
        MailedLink.used_at,
        MailedLink.user_id == person.id,
        MailedLink.purpose == Purpose.UNDO_ADDRESS,
        MailedLink.created_at > since,
    )
    record(uow, person.id, EventType.ADDRESS_UNDONE)


def _open(uow: UnitOfWork, purpose: Purpose, secret: str) -> tuple[MailedLink, str]:
    # Links of accounts have errors of their own, since they tell people something else.
    invalid = errors.ACCOUNT_LINK_INVALID
    opened = mailed_tokens.read_token(uow, purpose, secret, invalid=invalid)
    assert opened.email is not None
    return opened, opened.email


def _unused(opened: MailedLink, email: str) -> str:
    if opened.used_at is not None:
        raise errors.ACCOUNT_LINK_USED()
    return email


def _lock_person(uow: UnitOfWork, user_id: int) -> User:
    query = select(User).where(User.id == user_id, User.erased_at.is_(None)).with_for_update()
    person = uow.session.scalar(query.execution_options(populate_existing=True))
    if person is None:
        raise errors.ACCOUNT_LINK_INVALID()
    return person


def _set_password(uow: UnitOfWork, person: User, password_hash: str, *, but: int | None) -> None:
    person.password_hash = password_hash
    sessions.end_all(uow, person.id, but=but)
    record_moment_once(uow, MailedLink.used_at, MailedLink.user_id == person.id, _CHANGING)
    account_mails.mail_person(uow, MailKind.PASSWORD_CHANGED, person)


def _use(uow: UnitOfWork, opened: MailedLink) -> None:
    mailed_tokens.use_token(uow, opened, used=errors.ACCOUNT_LINK_USED)
