"""The second factors that people add and remove; a mail tells of each change."""

import secrets
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from sqlalchemy import delete, func, insert, select

from core.errors.people import SECOND_FACTOR_MISSING, SECOND_FACTOR_NOT_FOUND
from core.keyring import Keyring
from models import Passkey, RecoveryCode, TotpSecret, User
from services.access import sessions
from services.access.caller import Caller
from services.accounts import account_mails, accounts
from services.accounts.account_mails import MailKind
from services.accounts.factors import passkeys, totp
from services.security_events import EventType, record
from storage.unit_of_work import UnitOfWork, record_moment_once

CODES_MADE = 10
# Without letters and digits that look alike on paper. 32 of them: five bits each.
_ALPHABET = "abcdefghjkmnpqrstuvwxyz023456789"
_HALF_CHARACTERS = 5
_CODES_PURPOSE = "recovery-code"


def make_anew(uow: UnitOfWork, user_id: int) -> list[str]:
    """New codes in place of all that the person had. Only their HMACs are stored."""
    remove_codes(uow, user_id)
    codes = [f"{_half()}-{_half()}" for _ in range(CODES_MADE)]
    rows = [
        {"user_id": user_id, "code_hmac": _digests(uow.settings.keyring, each)[0]} for each in codes
    ]
    uow.session.execute(insert(RecoveryCode), rows)
    return codes


def take_code(uow: UnitOfWork, user_id: int, typed: str) -> bool:
    """Return whether this is a code of the person's that was not used; it is from now on."""
    is_it = RecoveryCode.code_hmac.in_(_digests(uow.settings.keyring, typed))
    return (
        record_moment_once(uow, RecoveryCode.used_at, RecoveryCode.user_id == user_id, is_it) == 1
    )


def left(uow: UnitOfWork, user_id: int) -> int:
    unused = (RecoveryCode.user_id == user_id, RecoveryCode.used_at.is_(None))
    return uow.session.scalar(select(func.count()).select_from(RecoveryCode).where(*unused)) or 0


def remove_codes(uow: UnitOfWork, user_id: int) -> None:
    uow.session.execute(delete(RecoveryCode).where(RecoveryCode.user_id == user_id))


def _half() -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(_HALF_CHARACTERS))


def _digests(keyring: Keyring, typed: str) -> list[bytes]:
    # People add spaces and capitals, and leave the hyphen out.
    code = "".join(filter(str.isalnum, typed.lower()))
    return keyring.signer(_CODES_PURPOSE).digests(code.encode("utf-8", "surrogatepass"))


_ADDED = EventType.FACTOR_ADDED
_REMOVED = EventType.FACTOR_REMOVED


class FactorChange(Enum):
    """A change: its event, the factor that it names, and the words of the mail that tells of it."""

    APP_ADDED = (_ADDED, "app", "An authenticator app was added.")
    APP_REMOVED = (_REMOVED, "app", "The authenticator app was removed.")
    PASSKEY_ADDED = (_ADDED, "passkey", "A passkey was added.")
    PASSKEY_REMOVED = (_REMOVED, "passkey", "A passkey was removed.")
    CODES_MADE = (
        _ADDED,
        "recovery codes",
        "New recovery codes were made; the ones before work no more.",
    )
    CODE_USED = (_REMOVED, "recovery code", "A recovery code was used. It works no more.")
    ALL_REMOVED = (_REMOVED, "all", "The operator of this service removed all of them.")


@dataclass(frozen=True)
class OwnFactors:
    app: TotpSecret | None
    passkeys: list[Passkey]
    codes_left: int


def of(uow: UnitOfWork, user_id: int) -> OwnFactors:
    return OwnFactors(totp.of(uow, user_id), passkeys.list_of(uow, user_id), left(uow, user_id))


def add_app(uow: UnitOfWork, caller: Caller, *, secret: str, code: str) -> list[str]:
    """Add an app, with recovery codes if it is the first factor; raises ``second_factor.wrong``."""
    sessions.lock_maker(uow, caller)
    is_first = not sessions.is_asked(uow, caller.user_id)
    totp.add(uow, uow.key_wrapper, caller.user_id, secret, code)
    tell(uow, caller.user_id, FactorChange.APP_ADDED)
    return make_anew(uow, caller.user_id) if is_first else []


def add_passkey(
    uow: UnitOfWork, caller: Caller, *, session: str, name: str, answer: str
) -> list[str]:
    """Add a passkey, with recovery codes if it is the first factor; raises as ``passkeys.add``."""
    sessions.lock_maker(uow, caller)
    is_first = not sessions.is_asked(uow, caller.user_id)
    passkeys.add(uow, caller.user_id, session=session, name=name, answer=answer)
    tell(uow, caller.user_id, FactorChange.PASSKEY_ADDED)
    return make_anew(uow, caller.user_id) if is_first else []


def make_codes(uow: UnitOfWork, caller: Caller) -> list[str]:
    """New recovery codes; raises ``auth.login_again``, and ``second_factor.missing``."""
    sessions.lock_maker(uow, caller)
    if not sessions.is_asked(uow, caller.user_id):
        raise SECOND_FACTOR_MISSING()
    tell(uow, caller.user_id, FactorChange.CODES_MADE)
    return make_anew(uow, caller.user_id)


def remove_app(uow: UnitOfWork, caller: Caller) -> None:
    """Raises ``auth.login_again`` and ``second_factor.not_found``."""
    sessions.lock_maker(uow, caller)
    if not totp.remove(uow, caller.user_id):
        raise SECOND_FACTOR_NOT_FOUND()
    tell(uow, caller.user_id, FactorChange.APP_REMOVED)
    _forget_needless_codes(uow, caller.user_id)


def remove_passkey(uow: UnitOfWork, caller: Caller, passkey_id: int) -> None:
    """Raises ``auth.login_again`` and ``second_factor.not_found``."""
    sessions.lock_maker(uow, caller)
    remove_passkeys(uow, caller.user_id, {passkey_id})


def remove_passkeys(uow: UnitOfWork, user_id: int, passkey_ids: Collection[int]) -> None:
    """End passkeys of a person who is locked; raises ``second_factor.not_found``."""
    for passkey_id in passkey_ids:
        if not passkeys.remove(uow, user_id, passkey_id):
            raise SECOND_FACTOR_NOT_FOUND()
        tell(uow, user_id, FactorChange.PASSKEY_REMOVED)
    _forget_needless_codes(uow, user_id)


def remove_later(uow: UnitOfWork, user_id: int, moment: datetime) -> None:
    """Remove what was added after this moment, for a person whom the caller has locked."""
    for kind, factor in ((TotpSecret, "app"), (Passkey, "passkey")):
        later = (kind.user_id == user_id, kind.created_at > moment)
        for _ in uow.session.execute(delete(kind).where(*later).returning(kind.user_id)).all():
            record(uow, user_id, EventType.FACTOR_REMOVED, factor=factor)
    _forget_needless_codes(uow, user_id)


def reset(uow: UnitOfWork, *, email: str) -> User:
    """Remove all factors of a person who lost theirs; raises ``user.not_found``."""
    person = accounts.get_by_email(uow, email)
    sessions.lock_person(uow, person.id)
    for kind in (TotpSecret, Passkey):
        uow.session.execute(delete(kind).where(kind.user_id == person.id))
    remove_codes(uow, person.id)
    tell(uow, person.id, FactorChange.ALL_REMOVED)
    return person


def tell(uow: UnitOfWork, user_id: int, change: FactorChange) -> None:
    """Record what happened to a person's factors, and mail it to them."""
    kind, factor, words = change.value
    record(uow, user_id, kind, factor=factor)
    person = accounts.get(uow, user_id)
    about = MailKind.FACTORS_CHANGED
    account_mails.mail_person(uow, about, person, words)


def _forget_needless_codes(uow: UnitOfWork, user_id: int) -> None:
    """Recovery codes end with the last factor: they would stand for none."""
    if not sessions.is_asked(uow, user_id):
        remove_codes(uow, user_id)
