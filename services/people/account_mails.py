"""The mails about an account, sent by durable jobs.

The request does the same work and gets the same answer for each address: only the worker looks up
whose address it is. So neither the answer nor its time reveals who has an account.
"""

from datetime import timedelta
from enum import StrEnum
from functools import partial

from sqlalchemy import func, select

from integrations.mail.port import Mailer
from models import AccountMail, User
from services.jobs import lease as leases
from services.jobs import outbox
from services.jobs.lease import Lease
from services.people import mailed_tokens, page_urls
from services.people.mail_jobs import mail_kind
from services.people.mail_templates import render
from services.people.mailed_tokens import Purpose
from services.people.unasked_mails import mail_bounds
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork


class MailKind(StrEnum):
    REGISTER = "register"
    FORGOTTEN_PASSWORD = "forgotten_password"  # noqa: S105 - a name
    NEW_ADDRESS = "new_address"
    MERGE_RECORDS = "merge_records"
    RECORDS_MERGED = "records_merged"
    PASSWORD_CHANGED = "password_changed"  # noqa: S105 - a name
    ADDRESS_CHANGED = "address_changed"
    NEW_KEY = "new_key"
    NEW_PROGRAM = "new_program"
    NEW_BROWSER = "new_browser"
    FACTORS_CHANGED = "factors_changed"
    NEW_WEBHOOK = "new_webhook"
    WEBHOOK_STOPPED = "webhook_stopped"
    MEMBERS_OVER_QUOTA = "members_over_quota"
    IMPORT_ENDED = "import_ended"
    # To readers, by a job of its own (`services/mailing/preferences/link_mails.py`).
    PREFERENCES = "preferences"


# Anybody can have these sent to any address.
_FOR_STRANGERS = (MailKind.REGISTER, MailKind.FORGOTTEN_PASSWORD, MailKind.NEW_ADDRESS)
# A stranger can enter another person's address, so the mails to an address are limited.
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
    detail: str | None = None,
    source: bytes | None = None,
    request_id: str | None = None,
) -> None:
    """Send a mail to this address, unless it got as many of this kind as the limit allows.

    ``email`` is normalised; ``user_id`` is the user who sent the request, when they are logged in.
    ``detail`` stands in the mail, so it holds no word that a stranger may choose. ``source`` is the
    digest of the network that the request came from (``mail_bounds``).
    """
    if not got_enough(uow, kind, email):
        enqueue_mail(
            uow, kind, email, user_id=user_id, detail=detail, source=source, request_id=request_id
        )


def got_enough(uow: UnitOfWork, kind: MailKind, email: str) -> bool:
    """Whether as many mails of this kind as the limit allows were asked for of late."""
    lately = select(func.count()).where(
        AccountMail.email == email,
        AccountMail.kind == kind,
        AccountMail.created_at > func.now() - MAIL_LIMIT_WINDOW,
    )
    return (uow.session.scalar(lately) or 0) >= MAX_MAILS_PER_ADDRESS


def enqueue_mail(
    uow: UnitOfWork,
    kind: MailKind,
    email: str,
    *,
    user_id: int | None,
    detail: str | None = None,
    source: bytes | None = None,
    request_id: str | None,
) -> None:
    """Send a mail that the person must get, without the limit of its kind."""
    asked = AccountMail(
        kind=kind, email=email, user_id=user_id, detail=detail, source_digest=source
    )
    uow.session.add(asked)
    uow.session.flush()
    outbox.enqueue(uow, SEND_ACCOUNT_MAIL, user_id=None, subject_id=asked.id, request_id=request_id)


def send(resources: Resources, lease: Lease, mailer: Mailer) -> None:
    with resources.unit_of_work() as uow:
        asked = uow.session.get(AccountMail, lease.subject_id)
        filled = None if asked is None else _filled_template(uow, resources, asked)
        if asked is None or filled is None:
            leases.succeed(uow, lease, {"sent": False})
            return
        template, values = filled
        key = f"job-{lease.job_id}"
        mail = render(template, to=asked.email, key=key, headers=None, **values)
    mailer.send(mail)
    with resources.unit_of_work() as uow:
        sent = uow.session.get(AccountMail, asked.id)
        if sent is not None:
            sent.sent_at = func.now()
        leases.succeed(uow, lease, {"sent": True})


# What a mailed token is for, the page of its link, and the person whom it is about.
_Link = tuple[Purpose, str, int | None]


def _filled_template(
    uow: UnitOfWork, resources: Resources, asked: AccountMail
) -> tuple[str, dict[str, str]] | None:
    """The mail's template and the values filled into it; ``None``: nothing is sent."""
    person = uow.session.scalar(select(User).where(User.email == asked.email))
    has_account = person is not None and person.password_hash is not None
    template, link = _template(asked, person, has_account=has_account)
    if template is None or not _admitted(uow, resources, asked, has_account=has_account):
        return None
    page = partial(page_urls.page_url, resources.settings)
    if link is None:
        pages = {
            "login_url": page(page_urls.LOGIN_PATH),
            "forgotten_url": page(page_urls.FORGOTTEN_PATH),
            "account_url": page(page_urls.ACCOUNT_PATH),
            "keys_url": page(page_urls.KEYS_PATH),
            "grants_url": page(page_urls.GRANTS_PATH),
            "factors_url": page(page_urls.FACTORS_PATH),
            "imports_url": page(page_urls.IMPORTS_PATH),
        }
        return template, {"email": asked.email, "detail": asked.detail or "", **pages}
    purpose, path, user_id = link
    secret = mailed_tokens.make(
        uow,
        resources.keyring,
        purpose,
        user_id=user_id,
        email=asked.email,
        # Workers may send two mails in another order than that of the changes that they undo.
        asked_at=asked.created_at if purpose is Purpose.UNDO_ADDRESS else None,
    )
    return template, {"url": page(path, token=secret)}


def _admitted(
    uow: UnitOfWork, resources: Resources, asked: AccountMail, *, has_account: bool
) -> bool:
    """Count a mail that a stranger asked for, once for all attempts to send it."""
    if asked.kind not in _FOR_STRANGERS or asked.admitted_at is not None:
        return True
    # No stranger can use up what a person with an account needs to get back into it.
    email = None if has_account else asked.email
    bounds = mail_bounds.of(resources.settings, resources.keyring, asked.source_digest, email=email)
    if not mail_bounds.admit(uow, bounds):
        return False
    asked.admitted_at = func.now()
    return True


def _template(
    asked: AccountMail, person: User | None, *, has_account: bool
) -> tuple[str | None, _Link | None]:
    """The mail's template, ``None`` for no mail, and what its link is for, if it has one."""
    kind = MailKind(asked.kind)
    template: str | None = kind.value
    link: _Link | None = None
    match kind:
        case MailKind.REGISTER if has_account:
            template = "account_exists"
        case MailKind.FORGOTTEN_PASSWORD if person is None:
            template = None
        case MailKind.FORGOTTEN_PASSWORD if person is not None and has_account:
            template = "new_password"
            link = (Purpose.RESET_PASSWORD, page_urls.RESET_PATH, person.id)
        case MailKind.REGISTER | MailKind.FORGOTTEN_PASSWORD:
            # Also for a reader without a password: opening the link proves that they have the
            # address.
            template = "register"
            link = (Purpose.REGISTER, page_urls.REGISTRATION_PATH, None)
        case MailKind.NEW_ADDRESS if person is not None and person.id == asked.user_id:
            template = "address_taken"
        case MailKind.NEW_ADDRESS:
            # Whoever has the address: only a person who proves that it is theirs hears of that.
            link = (Purpose.CHANGE_ADDRESS, page_urls.CONFIRM_EMAIL_PATH, asked.user_id)
        case MailKind.MERGE_RECORDS:
            link = (Purpose.MERGE_RECORDS, page_urls.MERGE_PATH, asked.user_id)
        case MailKind.ADDRESS_CHANGED:
            link = (Purpose.UNDO_ADDRESS, page_urls.UNDO_EMAIL_PATH, asked.user_id)
    return template, link
