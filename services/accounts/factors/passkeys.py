"""Passkeys: credentials of a person's own devices, by WebAuthn level 2.

A passkey signs for one origin, so no page of another site gets a signature that counts here. A
device that also asks for its owner's finger, face or PIN ("user verification") stands for the
password too.
"""

import hashlib
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from cryptography.exceptions import UnsupportedAlgorithm
from sqlalchemy import delete, func, select
from sqlalchemy.dialects.postgresql import insert
from webauthn import (
    generate_authentication_options,
    generate_registration_options,
    options_to_json,
    verify_authentication_response,
    verify_registration_response,
)
from webauthn.helpers import (
    parse_attestation_object,
    parse_authentication_credential_json,
    parse_client_data_json,
    parse_registration_credential_json,
)
from webauthn.helpers.exceptions import WebAuthnException
from webauthn.helpers.structs import (
    AttestationFormat,
    AuthenticatorSelectionCriteria,
    PublicKeyCredentialDescriptor,
    ResidentKeyRequirement,
    UserVerificationRequirement,
)

from core import clock
from core.errors import people as errors
from core.keyring import Keyring
from core.settings import Settings
from models import Passkey, SpentProof, User
from storage.unit_of_work import UnitOfWork

# Nothing is stored when one is made, so a stranger who asks for many fills nothing. Each is about
# one thing, such as the cookie of a browser, without which it is worth nothing.

PROOF_LIFETIME = timedelta(minutes=10)
_PURPOSE = "factor-proof"


def make(keyring: Keyring, about: str) -> str:
    expires = int((clock.now() + PROOF_LIFETIME).timestamp())
    stem = f"{expires}.{secrets.token_urlsafe(16)}"
    return f"{stem}.{keyring.signer(_PURPOSE).sign(_message(stem, about))}"


def is_valid(keyring: Keyring, about: str, proof: str) -> bool:
    """Return whether we made this proof about this thing, lately. It may be spent already."""
    stem, signature = _parts(proof)
    if not keyring.signer(_PURPOSE).verify(_message(stem, about), signature):
        return False
    return _expiry(stem) > clock.now()


def spend(uow: UnitOfWork, proof: str) -> bool:
    """Use a valid proof up; whether this was its first use, also of two at the same moment."""
    stem, _ = _parts(proof)
    spent = insert(SpentProof).values(proof_hash=_hash(stem), expires_at=_expiry(stem))
    result = uow.session.execute(spent.on_conflict_do_nothing().returning(SpentProof.proof_hash))
    return result.first() is not None


def is_spent(uow: UnitOfWork, proof: str) -> bool:
    stem, _ = _parts(proof)
    spent = select(SpentProof.proof_hash).where(SpentProof.proof_hash == _hash(stem))
    return uow.session.scalar(spent) is not None


def _hash(stem: str) -> bytes:
    # Without the signature and without a key: processes may sign with different ones.
    return hashlib.sha256(stem.encode()).digest()


def _parts(proof: str) -> tuple[str, str]:
    expires, _, rest = proof.partition(".")
    nonce, _, signature = rest.partition(".")
    return f"{expires}.{nonce}", signature


def _expiry(stem: str) -> datetime:
    return datetime.fromtimestamp(int(stem.partition(".")[0]), UTC)


def _message(stem: str, about: str) -> bytes:
    return f"{stem}\n{about}".encode("utf-8", "surrogatepass")


MAX_PASSKEYS = 20
MAX_PASSKEY_NAME_CHARACTERS = 100
# A browser sends a few hundred bytes, or some thousand with a long key.
MAX_ANSWER_CHARACTERS = 16_384
# Asked for none, browsers send these: nothing that a manufacturer signed is checked.
_FORMATS = (AttestationFormat.NONE, AttestationFormat.PACKED)
_NAME = "Pressroom"
# The beginnings of what a challenge is about.
_MAKING = "passkey.make\n"
_SIGNING = "passkey.sign\n"


def creation_options(uow: UnitOfWork, person: User, *, session: str) -> str:
    """Return what the browser of this session needs to make a passkey, as JSON."""
    known = list_of(uow, person.id)
    settings = uow.settings
    options = generate_registration_options(
        rp_id=_site(settings),
        rp_name=_NAME,
        user_id=_handle(person.id),
        user_name=person.email,
        user_display_name=person.name or person.email,
        challenge=make(settings.keyring, _MAKING + session).encode(),
        authenticator_selection=AuthenticatorSelectionCriteria(
            resident_key=ResidentKeyRequirement.PREFERRED,
            user_verification=UserVerificationRequirement.PREFERRED,
        ),
        exclude_credentials=_descriptors(known),
    )
    return options_to_json(options)


def request_options(
    settings: Settings, form_cookie: str, *, known: Sequence[Passkey] | None = None
) -> str:
    """Return what this browser needs to sign by one of these passkeys, as JSON.

    ``known=None``: by any passkey that verifies its user, for a login without a password.
    """
    needs = UserVerificationRequirement
    options = generate_authentication_options(
        rp_id=_site(settings),
        challenge=make(settings.keyring, _SIGNING + form_cookie).encode(),
        allow_credentials=_descriptors(known or ()),
        user_verification=needs.REQUIRED if known is None else needs.PREFERRED,
    )
    return options_to_json(options)


def options_of_person(uow: UnitOfWork, user_id: int, form_cookie: str) -> str | None:
    """Return the options for a login with one of the person's passkeys, or ``None``."""
    known = list_of(uow, user_id)
    return request_options(uow.settings, form_cookie, known=known) if known else None


def add(uow: UnitOfWork, user_id: int, *, session: str, name: str, answer: str) -> None:
    """Store the passkey that this session's browser made, for a person whom the caller has locked.

    Raises ``passkey.name``, ``passkey.invalid``, ``passkey.too_many`` and ``passkey.taken``.
    """
    name = name.strip()
    settings = uow.settings
    if not 1 <= len(name) <= MAX_PASSKEY_NAME_CHARACTERS:
        raise errors.PASSKEY_NAME(most=MAX_PASSKEY_NAME_CHARACTERS)
    if len(list_of(uow, user_id)) >= MAX_PASSKEYS:
        raise errors.PASSKEYS_TOO_MANY(most=MAX_PASSKEYS)
    with _refusing(answer):
        sent = parse_registration_credential_json(answer)
        challenge = _challenge(settings.keyring, _MAKING + session, sent.response.client_data_json)
        if parse_attestation_object(sent.response.attestation_object).fmt not in _FORMATS:
            raise errors.PASSKEY_INVALID()
        registration = verify_registration_response(
            credential=sent,
            expected_challenge=challenge,
            expected_rp_id=_site(settings),
            expected_origin=settings.public_origin,
        )
    _spend(uow, challenge)
    key = {
        "credential_id": registration.credential_id,
        "public_key": registration.credential_public_key,
    }
    row = insert(Passkey).values(
        user_id=user_id, name=name, sign_count=registration.sign_count, **key
    )
    added = row.on_conflict_do_nothing(index_elements=[Passkey.credential_id])
    if uow.session.scalar(added.returning(Passkey.id)) is None:
        raise errors.PASSKEY_TAKEN()


def take(uow: UnitOfWork, *, form_cookie: str, answer: str, user_id: int | None) -> Passkey:
    """The passkey by which this browser signed; raises ``passkey.invalid``.

    ``user_id=None``: in place of a password too, so the device must have verified its user.
    """
    settings = uow.settings
    with _refusing(answer):
        sent = parse_authentication_credential_json(answer)
        about = _SIGNING + form_cookie
        client_data = sent.response.client_data_json
        challenge = _challenge(settings.keyring, about, client_data)
        query = select(Passkey).where(Passkey.credential_id == sent.raw_id)
        # Locked, so that of two answers at once one sees the other's count.
        passkey = uow.session.scalar(query.with_for_update())
        handle = sent.response.user_handle
        if (
            passkey is None
            or user_id not in (None, passkey.user_id)
            or handle not in (None, b"", _handle(passkey.user_id))
        ):
            raise errors.PASSKEY_INVALID()
        checked = verify_authentication_response(
            credential=sent,
            expected_challenge=challenge,
            expected_rp_id=_site(settings),
            expected_origin=settings.public_origin,
            credential_public_key=passkey.public_key,
            credential_current_sign_count=passkey.sign_count,
            require_user_verification=user_id is None,
        )
    _spend(uow, challenge)
    passkey.sign_count = checked.new_sign_count
    passkey.last_used_at = func.now()
    return passkey


def list_of(uow: UnitOfWork, user_id: int) -> list[Passkey]:
    """The person's passkeys, newest first."""
    query = select(Passkey).where(Passkey.user_id == user_id).order_by(Passkey.id.desc())
    return list(uow.session.scalars(query))


def remove(uow: UnitOfWork, user_id: int, passkey_id: int) -> bool:
    removed = delete(Passkey).where(Passkey.user_id == user_id, Passkey.id == passkey_id)
    return uow.session.scalar(removed.returning(Passkey.id)) is not None


def _challenge(keyring: Keyring, about: str, client_data: bytes) -> bytes:
    """The challenge that was signed, which must be one that we made; raises ``passkey.invalid``."""
    challenge = parse_client_data_json(client_data).challenge
    if not is_valid(keyring, about, challenge.decode()):
        raise errors.PASSKEY_INVALID()
    return challenge


def _spend(uow: UnitOfWork, challenge: bytes) -> None:
    if not spend(uow, challenge.decode()):
        raise errors.PASSKEY_INVALID()


# The library and those below it raise these for bytes that no browser sends.
_HOSTILE = (
    WebAuthnException,
    UnsupportedAlgorithm,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    RecursionError,
)


@contextmanager
def _refusing(answer: str) -> Iterator[None]:
    """Raise ``passkey.invalid`` for an answer that fails the block."""
    if len(answer) > MAX_ANSWER_CHARACTERS:
        raise errors.PASSKEY_INVALID()
    try:
        yield
    except _HOSTILE:
        raise errors.PASSKEY_INVALID() from None


def _descriptors(known: Sequence[Passkey]) -> list[PublicKeyCredentialDescriptor]:
    return [PublicKeyCredentialDescriptor(id=each.credential_id) for each in known]


def _site(settings: Settings) -> str:
    """WebAuthn's name of us, the relying party: our host."""
    return (settings.public_url.host or "").strip("[]")


def _handle(user_id: int) -> bytes:
    return user_id.to_bytes(8)
