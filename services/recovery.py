"""Taking an account back: whoever else got into it is thrown out, with all that they made there."""

from dataclasses import dataclass

from core import clock
from core.keyring import Keyring
from models import User
from services.access import api_keys
from services.access.caller import Caller
from services.oauth import grants
from services.people import mailed_tokens, registration
from services.people.factors import own_factors, passkeys, second_steps
from services.people.factors.second_steps import ShownFactor
from services.people.mailed_tokens import Purpose
from services.webhooks import webhook_endpoints
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork


@dataclass(frozen=True)
class Kept:
    """What a person keeps, though they lost their password."""

    key_ids: frozenset[int]
    passkey_ids: frozenset[int]
    endpoint_ids: frozenset[int]


@dataclass(frozen=True)
class Ending:
    """What a person ends together with their old password."""

    grants: bool
    key_ids: frozenset[int]
    passkey_ids: frozenset[int]
    endpoint_ids: frozenset[int]


def reset(
    uow: UnitOfWork,
    resources: Resources,
    secret: str,
    *,
    password_hash: str,
    shown: ShownFactor,
    keep: Kept,
    request_id: str | None,
) -> User:
    """Set a new password; end sessions, grants, keys, passkeys and endpoints, except those to keep.

    Raises what ``registration.read_reset`` and ``second_steps.require`` raise.
    """
    person = registration.reset(
        uow, resources.keyring, secret, password_hash=password_hash, request_id=request_id
    )
    second_steps.require(uow, resources, person, shown, request_id=request_id)
    grants.revoke_all(uow, person.id)
    api_keys.revoke_all(uow, person.id, but=keep.key_ids)
    webhook_endpoints.end_all(uow, person.id, but=keep.endpoint_ids)
    own = {each.id for each in passkeys.list_of(uow, person.id)}
    ended = own - keep.passkey_ids
    own_factors.remove_passkeys(uow, person.id, ended, request_id=request_id)
    person.recovered_at = clock.now()
    return person


def undo_address(uow: UnitOfWork, keyring: Keyring, secret: str, *, password_hash: str) -> str:
    """Give an account its earlier address back, and end all that opens it.

    ``password_hash`` is of a password that no person knows. Returns the secret of a token to a new
    one. Raises what ``registration.undo_address`` raises.
    """
    person, changed_at = registration.undo_address(
        uow, keyring, secret, password_hash=password_hash
    )
    # Otherwise the reset that follows would ask the person for a factor of the intruder's.
    own_factors.remove_later(uow, person.id, changed_at)
    grants.revoke_all(uow, person.id)
    api_keys.revoke_all(uow, person.id, but=())
    webhook_endpoints.end_all(uow, person.id)
    person.recovered_at = clock.now()
    purpose = Purpose.RESET_PASSWORD
    return mailed_tokens.make(uow, keyring, purpose, user_id=person.id, email=person.email)


def change_password(
    uow: UnitOfWork,
    caller: Caller,
    *,
    expected: str | None,
    password_hash: str,
    ending: Ending,
    request_id: str | None,
) -> None:
    """Set a new password in place of the one that was checked; end other sessions, and ``ending``.

    Raises ``password.changed``, ``auth.login_again``, ``api_key.not_found`` and
    ``second_factor.not_found``.
    """
    registration.change_password(
        uow, caller, expected=expected, password_hash=password_hash, request_id=request_id
    )
    if ending.grants:
        grants.revoke_all(uow, caller.user_id)
    for key_id in ending.key_ids:
        api_keys.revoke(uow, key_id=key_id, user_id=caller.user_id)
    own_factors.remove_passkeys(uow, caller.user_id, ending.passkey_ids, request_id=request_id)
    webhook_endpoints.end(uow, caller.user_id, ending.endpoint_ids)
