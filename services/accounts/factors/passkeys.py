"""Stores and verifies the passkeys of a person's devices, according to WebAuthn level 2.

A passkey works only on the web site where it was created, so a phishing site can't obtain a valid
signature. A passkey replaces the password if the device checks a fingerprint, face or PIN (user
verification).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

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

from core.errors import people as errors
from core.ids import PersonId
from core.keyring import Keyring
from core.settings import Settings
from models import Passkey, User
from services.accounts.factors import proofs
from storage.unit_of_work import UnitOfWork

MAX_PASSKEYS = 20
MAX_PASSKEY_NAME_CHARACTERS = 100
# A WebAuthn response is usually a few hundred bytes long, or a few thousand if the key is long.
MAX_ANSWER_CHARACTERS = 16_384
# The attestation formats that browsers may send even though Pressroom requests no attestation.
_ATTESTATION_FORMATS = (AttestationFormat.NONE, AttestationFormat.PACKED)
_SITE_NAME = "Pressroom"
# Separate prefixes prevent a challenge for creating a passkey from being used to log in.
_CREATION_PREFIX = "passkey.make\n"
_LOGIN_PREFIX = "passkey.sign\n"
# The errors that the WebAuthn library raises for malformed responses.
_MALFORMED_ANSWER_ERRORS = (
    WebAuthnException,
    UnsupportedAlgorithm,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    RecursionError,
)


def build_creation_options(uow: UnitOfWork, person: User, *, session: str) -> str:
    """Return the JSON options for a new passkey, valid only with the session cookie ``session``."""
    known = list_passkeys(uow, person.id)
    settings = uow.settings
    options = generate_registration_options(
        rp_id=_relying_party_id(settings),
        rp_name=_SITE_NAME,
        user_id=_user_handle(person.id),
        user_name=person.email,
        user_display_name=person.name or person.email,
        challenge=proofs.create_proof(settings.keyring, _CREATION_PREFIX + session).encode(),
        authenticator_selection=AuthenticatorSelectionCriteria(
            resident_key=ResidentKeyRequirement.PREFERRED,
            user_verification=UserVerificationRequirement.PREFERRED,
        ),
        exclude_credentials=_descriptors(known),
    )
    return options_to_json(options)


def build_request_options(
    settings: Settings, form_cookie: str, *, known: Sequence[Passkey] | None = None
) -> str:
    """Return the JSON options for logging in with a passkey.

    The WebAuthn challenge is valid only for ``form_cookie``. If ``known`` is ``None``, in a login
    without a password, any passkey with user verification is accepted.
    """
    requirement = UserVerificationRequirement
    options = generate_authentication_options(
        rp_id=_relying_party_id(settings),
        challenge=proofs.create_proof(settings.keyring, _LOGIN_PREFIX + form_cookie).encode(),
        allow_credentials=_descriptors(known or ()),
        user_verification=requirement.REQUIRED if known is None else requirement.PREFERRED,
    )
    return options_to_json(options)


def build_request_options_for(uow: UnitOfWork, person_id: PersonId, form_cookie: str) -> str | None:
    known = list_passkeys(uow, person_id)
    return build_request_options(uow.settings, form_cookie, known=known) if known else None


def add_passkey(
    uow: UnitOfWork, person_id: PersonId, *, session: str, name: str, answer: str
) -> None:
    """Store a new passkey of a locked person.

    ``session`` is the browser's session cookie, and ``answer`` is its WebAuthn response.
    """
    name = name.strip()
    settings = uow.settings
    if not 1 <= len(name) <= MAX_PASSKEY_NAME_CHARACTERS:
        raise errors.PASSKEY_NAME(most=MAX_PASSKEY_NAME_CHARACTERS)
    if len(list_passkeys(uow, person_id)) >= MAX_PASSKEYS:
        raise errors.PASSKEYS_TOO_MANY(most=MAX_PASSKEYS)
    with _reject_malformed(answer):
        credential = parse_registration_credential_json(answer)
        challenge = _read_challenge(
            settings.keyring, _CREATION_PREFIX + session, credential.response.client_data_json
        )
        attestation = parse_attestation_object(credential.response.attestation_object)
        if attestation.fmt not in _ATTESTATION_FORMATS:
            raise errors.PASSKEY_INVALID()
        registration = verify_registration_response(
            credential=credential,
            expected_challenge=challenge,
            expected_rp_id=_relying_party_id(settings),
            expected_origin=settings.public_origin,
        )
    _spend_challenge(uow, challenge)
    row = insert(Passkey).values(
        user_id=person_id,
        name=name,
        sign_count=registration.sign_count,
        credential_id=registration.credential_id,
        public_key=registration.credential_public_key,
    )
    statement = row.on_conflict_do_nothing(index_elements=[Passkey.credential_id])
    if uow.session.scalar(statement.returning(Passkey.id)) is None:
        raise errors.PASSKEY_TAKEN()


def verify_passkey(
    uow: UnitOfWork, *, form_cookie: str, answer: str, person_id: PersonId | None
) -> Passkey:
    """Return the passkey that signed a browser's WebAuthn response.

    In a login without a password, ``person_id`` is ``None``, and user verification is required.
    """
    settings = uow.settings
    with _reject_malformed(answer):
        credential = parse_authentication_credential_json(answer)
        challenge = _read_challenge(
            settings.keyring, _LOGIN_PREFIX + form_cookie, credential.response.client_data_json
        )
        query = select(Passkey).where(Passkey.credential_id == credential.raw_id)
        # Lock the passkey, so that simultaneous logins update its signature counter one after
        # another.
        passkey = uow.session.scalar(query.with_for_update())
        handle = credential.response.user_handle
        if (
            passkey is None
            or person_id not in (None, passkey.user_id)
            or handle not in (None, b"", _user_handle(passkey.user_id))
        ):
            raise errors.PASSKEY_INVALID()
        verification = verify_authentication_response(
            credential=credential,
            expected_challenge=challenge,
            expected_rp_id=_relying_party_id(settings),
            expected_origin=settings.public_origin,
            credential_public_key=passkey.public_key,
            credential_current_sign_count=passkey.sign_count,
            require_user_verification=person_id is None,
        )
    _spend_challenge(uow, challenge)
    passkey.sign_count = verification.new_sign_count
    passkey.last_used_at = func.now()
    return passkey


def list_passkeys(uow: UnitOfWork, person_id: PersonId) -> list[Passkey]:
    query = select(Passkey).where(Passkey.user_id == person_id).order_by(Passkey.id.desc())
    return list(uow.session.scalars(query))


def remove_passkey(uow: UnitOfWork, person_id: PersonId, passkey_id: int) -> bool:
    statement = delete(Passkey).where(Passkey.user_id == person_id, Passkey.id == passkey_id)
    return uow.session.scalar(statement.returning(Passkey.id)) is not None


def _read_challenge(keyring: Keyring, subject: str, client_data: bytes) -> bytes:
    """Return the signed WebAuthn challenge, which must have been created for ``subject``."""
    challenge = parse_client_data_json(client_data).challenge
    if not proofs.is_valid_proof(keyring, subject, challenge.decode()):
        raise errors.PASSKEY_INVALID()
    return challenge


def _spend_challenge(uow: UnitOfWork, challenge: bytes) -> None:
    if not proofs.spend_proof(uow, challenge.decode()):
        raise errors.PASSKEY_INVALID()


@contextmanager
def _reject_malformed(answer: str) -> Iterator[None]:
    if len(answer) > MAX_ANSWER_CHARACTERS:
        raise errors.PASSKEY_INVALID()
    try:
        yield
    except _MALFORMED_ANSWER_ERRORS:
        raise errors.PASSKEY_INVALID() from None


def _descriptors(known: Sequence[Passkey]) -> list[PublicKeyCredentialDescriptor]:
    return [PublicKeyCredentialDescriptor(id=passkey.credential_id) for passkey in known]


def _relying_party_id(settings: Settings) -> str:
    return (settings.public_url.host or "").strip("[]")


def _user_handle(person_id: PersonId) -> bytes:
    return person_id.to_bytes(8)
