"""Sends the mails about accounts, each in a separate durable job.

A request for a mail takes the same time for every address, because only the worker looks up the
account. The response to a mail request doesn't reveal whether an address has an account.
"""

from datetime import timedelta
from enum import StrEnum
from functools import partial

from sqlalchemy import func, select

from integrations.mail.port import Mailer
from models import AccountMail, User
from services.accounts import mailed_tokens, page_paths, unsolicited_mail
from services.accounts.mail_rendering import register_mail_kind, render_mail
from services.accounts.mailed_tokens import Purpose
from services.jobs.lease import Lease
from services.jobs.outbox import enqueue_job
from services.jobs.transitions import complete_job
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

# The number of mails per address and kind is limited, because a stranger can request mails to
# another person's address.
MAIL_LIMIT_WINDOW = timedelta(hours=1)
MAX_MAILS_PER_ADDRESS = 3
ACCOUNT_MAIL_RETENTION = timedelta(days=1)


class MailKind(StrEnum):
    REGISTER = "register"
    FORGOTTEN_PASSWORD = "forgotten_password"  # noqa: S105 - a name
    NEW_ADDRESS = "new_address"
    PASSWORD_CHANGED = "password_changed"  # noqa: S105 - a name
    ADDRESS_CHANGED = "address_changed"
    NEW_KEY = "new_key"
    NEW_PROGRAM = "new_program"
    NEW_BROWSER = "new_browser"
    FACTORS_CHANGED = "factors_changed"
    NEW_WEBHOOK = "new_webhook"
    WEBHOOK_STOPPED = "webhook_stopped"
    KEY_EXPIRES = "key_expires"
    MEMBERS_OVER_QUOTA = "members_over_quota"
    IMPORT_ENDED = "import_ended"
    # A mail that contains a link to a reader's preferences. The module
    # ``services.subscriptions.preferences`` sends this kind of mail.
    PREFERENCES = "preferences"


# The kinds of mail that anyone can request for any address.
_STRANGER_KINDS = (MailKind.REGISTER, MailKind.FORGOTTEN_PASSWORD, MailKind.NEW_ADDRESS)
# Describes the link in a mail by the purpose of its token, the path of the linked page, and the id
# of the token's user.
_Link = tuple[Purpose, str, int | None]


def request_mail(
    uow: UnitOfWork,
    kind: MailKind,
    email: str,
    *,
    user_id: int | None = None,
    detail: str | None = None,
    source: bytes | None = None,
) -> None:
    """Enqueue a mail, unless the address has reached the hourly limit for mails of this kind.

    Args:
        email: the normalised e-mail address of the recipient.
        user_id: the id of the logged-in user who requested the mail, if any.
        detail: a text that the mail contains, and that a stranger must not be able to choose.
        source: the digest of the network from which the mail was requested.
    """
    if not is_mail_limit_reached(uow, kind, email):
        enqueue_mail(uow, kind, email, user_id=user_id, detail=detail, source=source)


def request_mail_to(uow: UnitOfWork, kind: MailKind, person: User, detail: str) -> None:
    """Enqueue a mail to a person's current address, unless the hourly mail limit is reached."""
    request_mail(uow, kind, person.email, user_id=person.id, detail=detail)


def is_mail_limit_reached(
    uow: UnitOfWork, kind: MailKind, email: str, *, detail: str | None = None
) -> bool:
    """Return whether an address has reached the hourly limit for mails of this kind.

    If ``detail`` is given, only mails that contain this text count against the limit.
    """
    recent_mails = select(func.count()).where(
        AccountMail.email == email,
        AccountMail.kind == kind,
        AccountMail.created_at > func.now() - MAIL_LIMIT_WINDOW,
    )
    if detail is not None:
        recent_mails = recent_mails.where(AccountMail.detail == detail)
    return (uow.session.scalar(recent_mails) or 0) >= MAX_MAILS_PER_ADDRESS


def enqueue_mail(
    uow: UnitOfWork,
    kind: MailKind,
    email: str,
    *,
    user_id: int | None,
    detail: str | None = None,
    source: bytes | None = None,
) -> None:
    """Enqueue a mail that must be sent even if the hourly mail limit of the address is reached."""
    mail = AccountMail(kind=kind, email=email, user_id=user_id, detail=detail, source_digest=source)
    uow.session.add(mail)
    uow.session.flush()
    enqueue_job(uow, SEND_ACCOUNT_MAIL, user_id=None, subject_id=mail.id)


def enqueue_mail_to(
    uow: UnitOfWork, kind: MailKind, person: User, detail: str | None = None
) -> None:
    """Enqueue a mail to a person's current address, ignoring the hourly mail limit."""
    enqueue_mail(uow, kind, person.email, user_id=person.id, detail=detail)


def admit_stranger_mail(uow: UnitOfWork, request: AccountMail, email: str | None) -> bool:
    """Return whether the rate limits for unsolicited mail allow a mail, and count the mail.

    A mail that the worker sends several times, because of retries, counts once.
    """
    if request.admitted_at is not None:
        return True
    bounds = unsolicited_mail.choose_bounds(uow.settings, request.source_digest, email=email)
    is_admitted = unsolicited_mail.admit_mail(uow, bounds)
    if is_admitted:
        request.admitted_at = func.now()
    return is_admitted


def send_account_mail(resources: Resources, lease: Lease, mailer: Mailer) -> None:
    with resources.unit_of_work() as uow:
        request = uow.session.get(AccountMail, lease.subject_id)
        content = None if request is None else _prepare_content(uow, request)
        if request is None or content is None:
            complete_job(uow, lease, {"sent": False})
            return
        template, values = content
        key = f"job-{lease.job_id}"
        mail = render_mail(template, to=request.email, key=key, headers=None, **values)
    mailer.send(mail)
    with resources.unit_of_work() as uow:
        sent_request = uow.session.get(AccountMail, request.id)
        if sent_request is not None:
            sent_request.sent_at = func.now()
        complete_job(uow, lease, {"sent": True})


SEND_ACCOUNT_MAIL = register_mail_kind("account.mail", send_account_mail)


def _prepare_content(uow: UnitOfWork, request: AccountMail) -> tuple[str, dict[str, str]] | None:
    """Return the name and values of the mail's template, or ``None`` if no mail should be sent."""
    person = uow.session.scalar(select(User).where(User.email == request.email))
    has_account = person is not None and person.password_hash is not None
    template, link = _choose_template(request, person, has_account=has_account)
    if template is None:
        return None
    # Mails to an account owner don't count against the rate limits of the mailbox, because
    # otherwise a stranger could exhaust these limits.
    email = None if has_account else request.email
    if request.kind in _STRANGER_KINDS and not admit_stranger_mail(uow, request, email):
        return None
    page = partial(page_paths.page_url, uow.settings)
    if link is None:
        pages = {
            "login_url": page(page_paths.LOGIN_PATH),
            "forgotten_url": page(page_paths.FORGOTTEN_PATH),
            "account_url": page(page_paths.ACCOUNT_PATH),
            "keys_url": page(page_paths.KEYS_PATH),
            "grants_url": page(page_paths.GRANTS_PATH),
            "factors_url": page(page_paths.FACTORS_PATH),
            "imports_url": page(page_paths.IMPORTS_PATH),
        }
        return template, {"email": request.email, "detail": request.detail or "", **pages}
    purpose, path, user_id = link
    # An undo link stores the time of its address change, because workers may send the mails about
    # two changes in the wrong order.
    created_at = request.created_at if purpose is Purpose.UNDO_ADDRESS else None
    secret = mailed_tokens.create_token(
        uow, purpose, user_id=user_id, email=request.email, created_at=created_at
    )
    return template, {"url": page(path, token=secret)}


def _choose_template(
    request: AccountMail, person: User | None, *, has_account: bool
) -> tuple[str | None, _Link | None]:
    """Return the template and the link of a mail.

    The template is ``None`` if no mail should be sent.
    """
    kind = MailKind(request.kind)
    template: str | None = kind.value
    link: _Link | None = None
    match kind:
        case MailKind.REGISTER if has_account:
            template = "account_exists"
        case MailKind.FORGOTTEN_PASSWORD if person is None:
            template = None
        case MailKind.FORGOTTEN_PASSWORD if person is not None and has_account:
            template = "new_password"
            link = (Purpose.RESET_PASSWORD, page_paths.RESET_PATH, person.id)
        case MailKind.REGISTER | MailKind.FORGOTTEN_PASSWORD:
            # A reader without a password who requests a password reset gets a registration link,
            # because opening the link proves that the reader owns the address.
            template = "register"
            link = (Purpose.REGISTER, page_paths.REGISTRATION_PATH, None)
        case MailKind.NEW_ADDRESS if person is not None and person.id == request.user_id:
            template = "address_taken"
        case MailKind.NEW_ADDRESS:
            # The mail with which a person confirms a new address doesn't reveal whether the address
            # has an account. Only the page to which a confirmation mail links reveals whether the
            # new address has an account.
            link = (Purpose.CHANGE_ADDRESS, page_paths.CONFIRM_EMAIL_PATH, request.user_id)
        case MailKind.ADDRESS_CHANGED:
            link = (Purpose.UNDO_ADDRESS, page_paths.UNDO_EMAIL_PATH, request.user_id)
    return template, link
