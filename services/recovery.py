"""Recovers accounts after an intrusion, and changes passwords and e-mail addresses of accounts.

A mailing list may have a record for the new address of an account. The list's record is erased if
the person agrees and owns the old and the new address. The record's opt-outs move to the account,
but its memberships end. A record with an API key or other account data is never erased.
"""

from dataclasses import dataclass

from sqlalchemy import select

from core import clock
from core.errors.people import ADDRESS_HAS_RECORD, ADDRESS_TAKEN
from core.ids import PersonId
from models import User
from services.access import api_keys
from services.access.caller import Caller
from services.accounts import accounts, mailed_tokens, registration
from services.accounts.factors import own_factors, passkeys, second_steps
from services.accounts.factors.second_steps import SubmittedFactor
from services.accounts.mailed_tokens import Purpose
from services.engagement import answers
from services.oauth import grants
from services.privacy import erasure
from services.senders import senders
from services.senders.senders_of_keys import revoke_key
from services.subscriptions import member_addresses
from services.subscriptions.members import (
    bounces,
    engagement_choices,
    locks,
    opt_outs,
    unsubscribe,
)
from services.webhooks import webhook_endpoints
from storage.unit_of_work import UnitOfWork


@dataclass(frozen=True)
class NewAddress:
    email: str
    has_record: bool


@dataclass(frozen=True)
class KeptAccess:
    key_ids: frozenset[int]
    passkey_ids: frozenset[int]
    endpoint_ids: frozenset[int]
    sender_ids: frozenset[int]


@dataclass(frozen=True)
class EndedAccess:
    grants: bool
    key_ids: frozenset[int]
    passkey_ids: frozenset[int]
    endpoint_ids: frozenset[int]
    sender_ids: frozenset[int]


def read_new_address(uow: UnitOfWork, secret: str, person_id: PersonId) -> NewAddress:
    email = registration.read_new_address_link(uow, secret, person_id)
    occupant = accounts.find_user_by_email(uow, email)
    has_record = occupant is not None and occupant.id != person_id
    if occupant is not None and has_record and accounts.has_account(uow, occupant):
        raise ADDRESS_TAKEN()
    return NewAddress(email, has_record)


def change_address(
    uow: UnitOfWork, secret: str, caller: Caller, *, erases: bool, is_visible: bool
) -> User:
    """Change an account's e-mail address to the address confirmed by a mailed link.

    Args:
        erases: whether the person agrees to erase a list's record for the new address.
        is_visible: whether list owners see the new address once the change can't be undone.
    """
    person, email = registration.prove_address(uow, secret, caller)
    erase_occupying_record(uow, person, email, erases=erases)
    opt_outs.copy_opt_outs_to_address(uow, person, email)
    bounces.release_bounces(uow, person.id)
    registration.change_address(uow, person, email, caller, is_visible=is_visible)
    unsubscribe.enqueue_opt_out_jobs(uow, person.id)
    engagement_choices.claim_refusals(uow, person)
    if is_visible:
        member_addresses.schedule_address_update(uow, person.id)
    return person


def erase_occupying_record(
    uow: UnitOfWork, person: User, email: str, *, erases: bool = True
) -> None:
    """Erase the record that a sign-up created for an address that an account needs.

    The caller must lock the account's owner. Raises ``account.address_taken`` if the record has
    account data, and ``account.address_has_record`` if ``erases`` is false. Raises ``list.busy`` if
    another transaction keeps the record locked.
    """
    # Wait only briefly for the record, because an import that has locked it may itself wait for the
    # person's row.
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
    answers.move_refusals(uow, of=record.id, to=person.id)
    erasure.mark_record_erased(uow, record)


def reset_password(
    uow: UnitOfWork, secret: str, *, password_hash: str, factor: SubmittedFactor, keep: KeptAccess
) -> User:
    """Set a new password with a reset link, and revoke all credentials that aren't in ``keep``.

    A password reset always revokes all sessions and OAuth grants.
    """
    person = registration.reset_password(uow, secret, password_hash=password_hash)
    second_steps.require_second_factor(uow, person, factor)
    grants.revoke_grants(uow, person.account_id, person.id)
    api_keys.revoke_keys(uow, person.account_id, kept_key_ids=keep.key_ids)
    webhook_endpoints.end_all_endpoints(uow, person.account_id, but=keep.endpoint_ids)
    senders.end_all_senders(uow, person.account_id, but=keep.sender_ids)
    passkey_ids = {each.id for each in passkeys.list_passkeys(uow, person.id)}
    own_factors.remove_passkeys(uow, person.id, passkey_ids - keep.passkey_ids)
    person.recovered_at = clock.now()
    return person


def undo_address_change(uow: UnitOfWork, secret: str, *, password_hash: str) -> str:
    """Restore an account's former e-mail address, and revoke all access to the account.

    Return the secret of a token for setting a new password. ``password_hash`` must be of a random
    password, so that nobody can log in until the owner has set a new one.
    """
    person, email, changed_at = registration.prove_earlier_address(uow, secret)
    # A list may have created a record for the former address in the meantime. Erase the list's
    # record, because a record and an account can't have the same address.
    erase_occupying_record(uow, person, email)
    registration.revert_address(uow, person, email, since=changed_at, password_hash=password_hash)
    # Remove second factors that an intruder may have added, because the password reset would ask
    # the owner for them.
    own_factors.remove_factors_added_after(uow, person.id, changed_at)
    grants.revoke_grants(uow, person.account_id, person.id)
    api_keys.revoke_keys(uow, person.account_id, kept_key_ids=())
    webhook_endpoints.end_all_endpoints(uow, person.account_id)
    senders.end_all_senders(uow, person.account_id)
    person.recovered_at = clock.now()
    purpose = Purpose.RESET_PASSWORD
    return mailed_tokens.create_token(uow, purpose, person_id=person.id, email=person.email)


def change_password(
    uow: UnitOfWork,
    caller: Caller,
    *,
    expected: str | None,
    password_hash: str,
    ending: EndedAccess,
) -> None:
    registration.change_password(uow, caller, expected=expected, password_hash=password_hash)
    if ending.grants:
        grants.revoke_grants(uow, caller.account_id, caller.person_id)
    for key_id in ending.key_ids:
        # Don't delete the webhook endpoints and senders of the API key, because the person chooses
        # separately which endpoints and senders to delete.
        revoke_key(uow, key_id=key_id, account_id=caller.account_id, keep_endpoints=True)
    own_factors.remove_passkeys(uow, caller.person_id, ending.passkey_ids)
    webhook_endpoints.end_endpoints(uow, caller.account_id, ending.endpoint_ids)
    senders.end_senders(uow, caller.account_id, ending.sender_ids)
