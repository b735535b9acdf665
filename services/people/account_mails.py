"""The mail that an account causes, sent by durable jobs.

Whoever asks for one is told the same, whoever the address is of, after the same work: only the
worker looks who that is. So neither the answer nor its time says who has an account.
"""

from datetime import timedelta
from enum import StrEnum

from sqlalchemy import func, select

from core.settings import Settings
from integrations.mail.port import Mail, Mailer
from models import AccountMail, User
from services.jobs import lease as leases
from services.jobs import outbox
from services.jobs.lease import Lease
from services.people import mailed_tokens
from services.people.mail_jobs import mail_kind
from services.people.mail_templates import render
from services.people.mailed_tokens import Purpose
from services.people.page_urls import (
    CONFIRM_EMAIL_PATH,
    FORGOTTEN_PATH,
    LOGIN_PATH,
    REGISTRATION_PATH,
    RESET_PATH,
    page_url,
)
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork


class MailKind(StrEnum):
    REGISTER = "register"
    FORGOTTEN_PASSWORD = "forgotten_password"  # noqa: S105 - a name
    NEW_ADDRESS = "new_address"
    PASSWORD_CHANGED = "password_changed"  # noqa: S105 - a name
    ADDRESS_CHANGED = "address_changed"


# A stranger can ask for anybody's address, so that person is not written to again and again.
MAIL_LIMIT_WINDOW = timedelta(hours=1)
MAX_MAILS_PER_ADDRESS = 3
ACCOUNT_MAIL_RETENTION = timedelta(days=1)


SEND_ACCOUNT_MAIL = mail_kind("account.mail")


def request_mail(
    uow: UnitOfWork,
    kind: MailKind,
    email: str,
    *,
    user_id: int | None = None,
    request_id: str | None = None,
) -> None:
    """Mail what this address is to get, unless somebody asked for it again and again.

    ``email`` is normalised; ``user_id`` is whose request it is, where they showed who they are.
    """
    lately = select(func.count()).where(
        AccountMail.email == email,
        AccountMail.kind == kind,
        AccountMail.created_at > func.now() - MAIL_LIMIT_WINDOW,
    )
    if (uow.session.scalar(lately) or 0) >= MAX_MAILS_PER_ADDRESS:
        return
    enqueue_mail(uow, kind, email, user_id=user_id, request_id=request_id)


def enqueue_mail(
    uow: UnitOfWork,
    kind: MailKind,
    email: str,
    *,
    user_id: int | None,
    request_id: str | None,
) -> None:
    """Mail what the person must hear, however often."""
    asked = AccountMail(kind=kind, email=email, user_id=user_id)
    uow.session.add(asked)
    uow.session.flush()
    outbox.enqueue(uow, SEND_ACCOUNT_MAIL, user_id=None, subject_id=asked.id, request_id=request_id)


def send(resources: Resources, lease: Lease, mailer: Mailer) -> None:
    with resources.unit_of_work() as uow:
        asked = uow.session.get(AccountMail, lease.subject_id)
        mail = None if asked is None else _mail(uow, resources, asked, f"job-{lease.job_id}")
        if asked is None or mail is None:
            leases.succeed(uow, lease, {"sent": False})
            return
    mailer.send(mail)
    with resources.unit_of_work() as uow:
        sent = uow.session.get(AccountMail, asked.id)
        if sent is not None:
            sent.sent_at = func.now()
        leases.succeed(uow, lease, {"sent": True})


def _mail(uow: UnitOfWork, resources: Resources, asked: AccountMail, key: str) -> Mail | None:
    person = uow.session.scalar(select(User).where(User.email == asked.email))
    found = _template(uow, resources, asked, person)
    if found is None:
        return None
    template, values = found
    return render(template, to=asked.email, key=key, headers=None, **values)


_Found = tuple[str, dict[str, str]] | None


def _template(
    uow: UnitOfWork, resources: Resources, asked: AccountMail, person: User | None
) -> _Found:
    """The mail's template and what is filled into it; ``None``: nothing is sent."""
    match MailKind(asked.kind):
        case MailKind.REGISTER:
            return _register(uow, resources, asked, person)
        case MailKind.FORGOTTEN_PASSWORD:
            return _forgotten(uow, resources, asked, person)
        case MailKind.NEW_ADDRESS:
            return _new_address(uow, resources, asked, person)
        case MailKind.PASSWORD_CHANGED:
            return "password_changed", _ways_in(resources.settings, asked.email)
        case MailKind.ADDRESS_CHANGED:
            return "address_changed", {}


def _register(
    uow: UnitOfWork, resources: Resources, asked: AccountMail, person: User | None
) -> _Found:
    if person is not None and person.password_hash is not None:
        return "account_exists", _ways_in(resources.settings, asked.email)
    # Of a person who is only known as a reader too: opening it proves that they have the address.
    secret = mailed_tokens.make(
        uow,
        resources.keyring,
        Purpose.REGISTER,
        user_id=None,
        email=asked.email,
    )
    return "register", {"url": page_url(resources.settings, REGISTRATION_PATH, token=secret)}


def _forgotten(
    uow: UnitOfWork, resources: Resources, asked: AccountMail, person: User | None
) -> _Found:
    if person is None:
        return None
    if person.password_hash is None:
        return _register(uow, resources, asked, person)
    secret = mailed_tokens.make(
        uow,
        resources.keyring,
        Purpose.RESET_PASSWORD,
        user_id=person.id,
        email=asked.email,
    )
    return "new_password", {"url": page_url(resources.settings, RESET_PATH, token=secret)}


def _new_address(
    uow: UnitOfWork, resources: Resources, asked: AccountMail, person: User | None
) -> _Found:
    if person is not None:
        return "address_taken", _ways_in(resources.settings, asked.email)
    secret = mailed_tokens.make(
        uow,
        resources.keyring,
        Purpose.CHANGE_ADDRESS,
        user_id=asked.user_id,
        email=asked.email,
    )
    return "new_address", {"url": page_url(resources.settings, CONFIRM_EMAIL_PATH, token=secret)}


def _ways_in(settings: Settings, email: str) -> dict[str, str]:
    return {
        "email": email,
        "login_url": page_url(settings, LOGIN_PATH),
        "forgotten_url": page_url(settings, FORGOTTEN_PATH),
    }
