"""Adds and removes a person's second factors, and notifies the person of each change by mail."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from sqlalchemy import delete

from core.errors.people import SECOND_FACTOR_MISSING, SECOND_FACTOR_NOT_FOUND
from core.ids import PersonId
from models import Passkey, TotpSecret, User
from services.access import sessions
from services.access.caller import Caller
from services.accounts import account_mails, accounts
from services.accounts.account_mails import MailKind
from services.accounts.factors import passkeys, recovery_codes, totp
from services.security_events import EventType, record_person_event
from storage.unit_of_work import UnitOfWork

_ADDED = EventType.FACTOR_ADDED
_REMOVED = EventType.FACTOR_REMOVED


class FactorChange(Enum):
    """A change to a person's second factors, such as a new passkey.

    Each value consists of the type of the security event, the name of the factor, and a text for
    the mail.
    """

    APP_ADDED = (_ADDED, "app", "An authenticator app was added.")
    APP_REMOVED = (_REMOVED, "app", "An authenticator app was removed.")
    PASSKEY_ADDED = (_ADDED, "passkey", "A passkey was added.")
    PASSKEY_REMOVED = (_REMOVED, "passkey", "A passkey was removed.")
    CODES_MADE = (
        _ADDED,
        "recovery codes",
        "New recovery codes were created. The old recovery codes no longer work.",
    )
    CODE_USED = (_REMOVED, "recovery code", "A recovery code was used and no longer works.")
    ALL_REMOVED = (_REMOVED, "all", "The operator of this service removed all second factors.")


@dataclass(frozen=True)
class FactorOverview:
    app: TotpSecret | None
    passkeys: list[Passkey]
    codes_left: int


def list_factors(uow: UnitOfWork, person_id: PersonId) -> FactorOverview:
    return FactorOverview(
        totp.find_secret(uow, person_id),
        passkeys.list_passkeys(uow, person_id),
        recovery_codes.count_unused_codes(uow, person_id),
    )


def add_app(uow: UnitOfWork, caller: Caller, *, secret: str, code: str) -> list[str]:
    """Add an authenticator app. Return recovery codes if this is the first second factor."""
    sessions.lock_caller(uow, caller)
    is_first = not sessions.has_second_factor(uow, caller.person_id)
    totp.add_secret(uow, uow.key_wrapper, caller.person_id, secret, code)
    report_change(uow, caller.person_id, FactorChange.APP_ADDED)
    return recovery_codes.create_codes(uow, caller.person_id) if is_first else []


def add_passkey(
    uow: UnitOfWork, caller: Caller, *, session: str, name: str, answer: str
) -> list[str]:
    """Add a passkey. Return recovery codes as ``add_app`` does."""
    sessions.lock_caller(uow, caller)
    is_first = not sessions.has_second_factor(uow, caller.person_id)
    passkeys.add_passkey(uow, caller.person_id, session=session, name=name, answer=answer)
    report_change(uow, caller.person_id, FactorChange.PASSKEY_ADDED)
    return recovery_codes.create_codes(uow, caller.person_id) if is_first else []


def replace_recovery_codes(uow: UnitOfWork, caller: Caller) -> list[str]:
    sessions.lock_caller(uow, caller)
    if not sessions.has_second_factor(uow, caller.person_id):
        raise SECOND_FACTOR_MISSING()
    report_change(uow, caller.person_id, FactorChange.CODES_MADE)
    return recovery_codes.create_codes(uow, caller.person_id)


def remove_app(uow: UnitOfWork, caller: Caller) -> None:
    sessions.lock_caller(uow, caller)
    if not totp.remove_secret(uow, caller.person_id):
        raise SECOND_FACTOR_NOT_FOUND()
    report_change(uow, caller.person_id, FactorChange.APP_REMOVED)
    _remove_codes_without_factors(uow, caller.person_id)


def remove_passkey(uow: UnitOfWork, caller: Caller, passkey_id: int) -> None:
    sessions.lock_caller(uow, caller)
    remove_passkeys(uow, caller.person_id, {passkey_id})


def remove_passkeys(uow: UnitOfWork, person_id: PersonId, passkey_ids: Collection[int]) -> None:
    """Remove passkeys of a locked person."""
    for passkey_id in passkey_ids:
        if not passkeys.remove_passkey(uow, person_id, passkey_id):
            raise SECOND_FACTOR_NOT_FOUND()
        report_change(uow, person_id, FactorChange.PASSKEY_REMOVED)
    _remove_codes_without_factors(uow, person_id)


def remove_factors_added_after(uow: UnitOfWork, person_id: PersonId, moment: datetime) -> None:
    """Remove a locked person's second factors that are newer than ``moment``, without a mail."""
    for model, factor in ((TotpSecret, "app"), (Passkey, "passkey")):
        added_later = (model.user_id == person_id, model.created_at > moment)
        statement = delete(model).where(*added_later).returning(model.user_id)
        for _ in uow.session.execute(statement).all():
            record_person_event(uow, person_id, EventType.FACTOR_REMOVED, factor=factor)
    _remove_codes_without_factors(uow, person_id)


def remove_all_factors(uow: UnitOfWork, *, email: str) -> User:
    person = accounts.get_user_by_email(uow, email)
    sessions.lock_person(uow, person.id)
    for model in (TotpSecret, Passkey):
        uow.session.execute(delete(model).where(model.user_id == person.id))
    recovery_codes.remove_codes(uow, person.id)
    report_change(uow, person.id, FactorChange.ALL_REMOVED)
    return person


def report_change(uow: UnitOfWork, person_id: PersonId, change: FactorChange) -> None:
    event_type, factor, text = change.value
    record_person_event(uow, person_id, event_type, factor=factor)
    person = accounts.get_user(uow, person_id)
    account_mails.enqueue_mail(uow, MailKind.FACTORS_CHANGED, person, text)


def _remove_codes_without_factors(uow: UnitOfWork, person_id: PersonId) -> None:
    if not sessions.has_second_factor(uow, person_id):
        recovery_codes.remove_codes(uow, person_id)
