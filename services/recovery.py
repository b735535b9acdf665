"""Taking an account back: whoever else got into it is thrown out, with all that they made there."""

from dataclasses import dataclass

from sqlalchemy import select

from core import clock
from core.errors.people import ADDRESS_HAS_RECORD, ADDRESS_TAKEN
from models import User
from services.access import api_keys
from services.access.caller import Caller
from services.accounts import accounts, mailed_tokens, registration
from services.accounts.factors import own_factors, passkeys, second_steps
from services.accounts.factors.second_steps import ShownFactor
from services.accounts.mailed_tokens import Purpose
from services.oauth import grants
from services.privacy import erasure
from services.subscriptions import member_addresses
from services.subscriptions.members import locks, opt_outs, unsubscribe
from services.webhooks import webhook_endpoints
from services.webhooks.endpoints_of_keys import revoke_key
from storage.unit_of_work import UnitOfWork

# Lists may have made a record of that address. It can't become part of the account: it is erased,
# if its person says so once they have proved both addresses. Its opt-outs hold for the account
# then, and its memberships end. A record that has more than a reader has is an account, and
# stays.


@dataclass(frozen=True)
class NewAddress:
    """An address that the account may have, and whether it has a record to be erased before."""

    email: str
    has_record: bool


def read(uow: UnitOfWork, secret: str, user_id: int) -> NewAddress:
    """Return what a link would give this account; raises also ``account.address_taken``."""
    email = registration.read_new_address(uow, secret, user_id)
    found = accounts.find_by_email(uow, email)
    has_record = found is not None and found.id != user_id
    if found is not None and has_record and accounts.has_account(uow, found):
        raise ADDRESS_TAKEN()
    return NewAddress(email, has_record)


def change(uow: UnitOfWork, secret: str, caller: Caller, *, erases: bool, shown: bool) -> User:
    """Give the account its new address.

    Args:
        erases: a record that the address has may be erased.
        shown: the lists of the person get to know the address, once nothing can be undone any more.

    Raises what ``registration.prove_address`` raises, ``account.address_taken``, ``list.busy``, and
    ``account.address_has_record`` for a record that may not be erased.
    """
    person, email = registration.prove_address(uow, secret, caller)
    make_way(uow, person, email, erases=erases)
    opt_outs.keep_for_address(uow, person, email)
    registration.move(uow, person, email, caller, shown=shown)
    unsubscribe.follow_all(uow, person.id)
    if shown:
        member_addresses.begin(uow, person.id)
    return person


def make_way(uow: UnitOfWork, person: User, email: str, *, erases: bool = True) -> None:
    """Erase the lists' record of an address that the locked person proved; raises as ``change``."""
    # An import may hold the record for seconds, and wait for the person meanwhile.
    with locks.waiting_briefly(uow):
        query = select(User).where(User.email == email, User.id != person.id).with_for_update()
        found = uow.session.scalar(query.execution_options(populate_existing=True))
    if found is None:
        return
    if accounts.has_account(uow, found):
        raise ADDRESS_TAKEN()
    if not erases:
        raise ADDRESS_HAS_RECORD()
    opt_outs.hand_over(uow, of=found, to=person)
    erasure.mark_record(uow, found)


@dataclass(frozen=True)
class Kept:
    """The access that a person keeps, though they lost their password."""

    key_ids: frozenset[int]
    passkey_ids: frozenset[int]
    endpoint_ids: frozenset[int]


@dataclass(frozen=True)
class Ending:
    """The access that a person ends together with their old password."""

    grants: bool
    key_ids: frozenset[int]
    passkey_ids: frozenset[int]
    endpoint_ids: frozenset[int]


def reset(
    uow: UnitOfWork, secret: str, *, password_hash: str, shown: ShownFactor, keep: Kept
) -> User:
    """Set a new password; end sessions, grants, keys, passkeys and endpoints, except those to keep.

    Raises what ``registration.read_reset`` and ``second_steps.require`` raise.
    """
    person = registration.reset(uow, secret, password_hash=password_hash)
    second_steps.require(uow, person, shown)
    grants.revoke_all(uow, person.id)
    api_keys.revoke_all(uow, person.id, but=keep.key_ids)
    webhook_endpoints.end_all(uow, person.id, but=keep.endpoint_ids)
    own = {each.id for each in passkeys.list_of(uow, person.id)}
    ended = own - keep.passkey_ids
    own_factors.remove_passkeys(uow, person.id, ended)
    person.recovered_at = clock.now()
    return person


def undo_address(uow: UnitOfWork, secret: str, *, password_hash: str) -> str:
    """Give an account its earlier address back, and end all that opens it.

    ``password_hash`` is of a password that no person knows. Returns the secret of a token to a new
    one. Raises what ``registration.prove_earlier_address`` raises, and ``account.address_taken``.
    """
    person, email, changed_at = registration.prove_earlier_address(uow, secret)
    # A stranger who subscribed the address since the change must not be able to block the undo.
    make_way(uow, person, email)
    registration.move_back(uow, person, email, since=changed_at, password_hash=password_hash)
    # Otherwise the reset that follows would ask the person for a factor of the intruder's.
    own_factors.remove_later(uow, person.id, changed_at)
    grants.revoke_all(uow, person.id)
    api_keys.revoke_all(uow, person.id, but=())
    webhook_endpoints.end_all(uow, person.id)
    person.recovered_at = clock.now()
    purpose = Purpose.RESET_PASSWORD
    return mailed_tokens.make(uow, purpose, user_id=person.id, email=person.email)


def change_password(
    uow: UnitOfWork, caller: Caller, *, expected: str | None, password_hash: str, ending: Ending
) -> None:
    """Set a new password in place of the one that was checked; end other sessions, and ``ending``.

    Raises ``password.changed``, ``auth.login_again``, ``api_key.not_found`` and
    ``second_factor.not_found``.
    """
    registration.change_password(uow, caller, expected=expected, password_hash=password_hash)
    if ending.grants:
        grants.revoke_all(uow, caller.user_id)
    for key_id in ending.key_ids:
        # The person ticks endpoints by themselves.
        revoke_key(uow, key_id=key_id, user_id=caller.user_id, keep_endpoints=True)
    own_factors.remove_passkeys(uow, caller.user_id, ending.passkey_ids)
    webhook_endpoints.end_endpoints(uow, caller.user_id, ending.endpoint_ids)
