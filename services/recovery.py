"""Recovers an account: its owner gets it back, and an intruder loses all access.

An address change works the same way, because a list may have made a record of the new address.
The record can't become part of the account. It is erased, if the person agrees to this after they
have proved both addresses. Its opt-outs then hold for the account, and its memberships end. A
record with anything that only accounts have is an account of its own, and is kept.
"""

from dataclasses import dataclass

from sqlalchemy import select

from core import clock
from core.errors.people import ADDRESS_HAS_RECORD, ADDRESS_TAKEN
from models import User
from services.access import api_keys
from services.access.caller import Caller
from services.accounts import accounts, mailed_tokens, registration
from services.accounts.factors import own_factors, passkeys, second_steps
from services.accounts.factors.second_steps import SubmittedFactor
from services.accounts.mailed_tokens import Purpose
from services.oauth import grants
from services.privacy import erasure
from services.subscriptions import member_addresses
from services.subscriptions.members import locks, opt_outs, unsubscribe
from services.webhooks import webhook_endpoints
from services.webhooks.endpoints_of_keys import revoke_key
from storage.unit_of_work import UnitOfWork


@dataclass(frozen=True)
class NewAddress:
    """An address that the account may have.

    Attributes:
        has_record: whether the address already has a record. That record must be erased before
            the account can take the address.
    """

    email: str
    has_record: bool


@dataclass(frozen=True)
class KeptAccess:
    """The access that a person keeps although they lost their password."""

    key_ids: frozenset[int]
    passkey_ids: frozenset[int]
    endpoint_ids: frozenset[int]


@dataclass(frozen=True)
class EndedAccess:
    """The access that a person ends together with their old password."""

    grants: bool
    key_ids: frozenset[int]
    passkey_ids: frozenset[int]
    endpoint_ids: frozenset[int]


def read_new_address(uow: UnitOfWork, secret: str, user_id: int) -> NewAddress:
    """Return the address that a mailed link would give this account.

    Raises the errors of ``registration.read_new_address_link``, and ``account.address_taken``.
    """
    email = registration.read_new_address_link(uow, secret, user_id)
    occupant = accounts.find_user_by_email(uow, email)
    has_record = occupant is not None and occupant.id != user_id
    if occupant is not None and has_record and accounts.has_account(uow, occupant):
        raise ADDRESS_TAKEN()
    return NewAddress(email, has_record)


def change_address(
    uow: UnitOfWork, secret: str, caller: Caller, *, erases: bool, is_visible: bool
) -> User:
    """Give the account its new address.

    Args:
        erases: whether a record of the address may be erased.
        shown: whether the person's lists get the address, once the change can't be undone.

    Raises the errors of ``registration.prove_address``, ``account.address_taken``, ``list.busy``,
    and ``account.address_has_record`` for a record that may not be erased.
    """
    person, email = registration.prove_address(uow, secret, caller)
    erase_occupying_record(uow, person, email, erases=erases)
    opt_outs.copy_opt_outs_to_address(uow, person, email)
    registration.change_address(uow, person, email, caller, is_visible=is_visible)
    unsubscribe.enqueue_opt_out_jobs(uow, person.id)
    if is_visible:
        member_addresses.schedule_address_update(uow, person.id)
    return person


def erase_occupying_record(
    uow: UnitOfWork, person: User, email: str, *, erases: bool = True
) -> None:
    """Erase the lists' record of an address that the locked person proved.

    Raises ``account.address_taken``, ``list.busy`` and ``account.address_has_record``.
    """
    # An import may lock the record for seconds, and wait for the person meanwhile.
    with locks.limit_lock_waits(uow):
        query = select(User).where(User.email == email, User.id != person.id).with_for_update()
        record = uow.session.scalar(query.execution_options(populate_existing=True))
    if record is None:
        return
    if accounts.has_account(uow, record):
        raise ADDRESS_TAKEN()
    if not erases:
        raise ADDRESS_HAS_RECORD()
    opt_outs.transfer_opt_outs(uow, of=record, to=person)
    erasure.mark_record(uow, record)


def reset_password(
    uow: UnitOfWork, secret: str, *, password_hash: str, factor: SubmittedFactor, keep: KeptAccess
) -> User:
    """Set a new password; end sessions, grants, keys, passkeys and endpoints, except those to keep.

    Raises the errors of ``registration.read_reset_link`` and
    ``second_steps.require_second_factor``.
    """
    person = registration.reset_password(uow, secret, password_hash=password_hash)
    second_steps.require_second_factor(uow, person, factor)
    grants.revoke_all(uow, person.id)
    api_keys.revoke_keys(uow, person.id, kept_key_ids=keep.key_ids)
    webhook_endpoints.end_all_endpoints(uow, person.id, but=keep.endpoint_ids)
    passkey_ids = {each.id for each in passkeys.list_passkeys(uow, person.id)}
    own_factors.remove_passkeys(uow, person.id, passkey_ids - keep.passkey_ids)
    person.recovered_at = clock.now()
    return person


def undo_address_change(uow: UnitOfWork, secret: str, *, password_hash: str) -> str:
    """Restore the earlier address of an account, and end all access to it.

    ``password_hash`` is the hash of a password that nobody knows. Returns the secret of a token
    with which the person sets a new password. Raises the errors of
    ``registration.prove_earlier_address``, and ``account.address_taken``.
    """
    person, email, changed_at = registration.prove_earlier_address(uow, secret)
    # A stranger may have subscribed the address since the change. They must not block the undo.
    erase_occupying_record(uow, person, email)
    registration.revert_address(uow, person, email, since=changed_at, password_hash=password_hash)
    # Otherwise the password reset would ask the person for a factor that the intruder added.
    own_factors.remove_factors_added_after(uow, person.id, changed_at)
    grants.revoke_all(uow, person.id)
    api_keys.revoke_keys(uow, person.id, kept_key_ids=())
    webhook_endpoints.end_all_endpoints(uow, person.id)
    person.recovered_at = clock.now()
    purpose = Purpose.RESET_PASSWORD
    return mailed_tokens.create_token(uow, purpose, user_id=person.id, email=person.email)


def change_password(
    uow: UnitOfWork,
    caller: Caller,
    *,
    expected: str | None,
    password_hash: str,
    ending: EndedAccess,
) -> None:
    """Replace the password that was checked; end other sessions, and the access in ``ending``.

    Raises ``password.changed``, ``auth.login_again``, ``api_key.not_found`` and
    ``second_factor.not_found``.
    """
    registration.change_password(uow, caller, expected=expected, password_hash=password_hash)
    if ending.grants:
        grants.revoke_all(uow, caller.user_id)
    for key_id in ending.key_ids:
        # The person chooses the endpoints separately.
        revoke_key(uow, key_id=key_id, user_id=caller.user_id, keep_endpoints=True)
    own_factors.remove_passkeys(uow, caller.user_id, ending.passkey_ids)
    webhook_endpoints.end_endpoints(uow, caller.user_id, ending.endpoint_ids)
