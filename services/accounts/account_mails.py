"""Sends mails about accounts, such as password resets.

Each mail is sent by a separate job. Only the worker looks up the account, so neither the response
to a request nor its duration reveals whether an address has an account.
"""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import partial

from sqlalchemy import func, select

from core.errors import TransientError
from core.ids import PersonId
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

MAX_MAILS_PER_ADDRESS = 3
ACCOUNT_MAIL_RETENTION = timedelta(days=1)


@dataclass(frozen=True)
class MailLimit:
    """The maximum number of mails of one kind that an address gets.

    Attributes:
        within: the time in which the mails are counted, at most ``ACCOUNT_MAIL_RETENTION``.
        per_detail: whether mails with different details are counted separately.
    """

    mails: int
    within: timedelta
    per_detail: bool = False


# Mails are limited because anybody can request mails to any address.
HOURLY_LIMIT = MailLimit(MAX_MAILS_PER_ADDRESS, timedelta(hours=1))
HOURLY_LIMIT_PER_DETAIL = MailLimit(MAX_MAILS_PER_ADDRESS, timedelta(hours=1), per_detail=True)
DAILY_LIMIT = MailLimit(1, ACCOUNT_MAIL_RETENTION)
DAILY_LIMIT_PER_DETAIL = MailLimit(1, ACCOUNT_MAIL_RETENTION, per_detail=True)


class MailKind(StrEnum):
    REGISTER = "register"
    FORGOTTEN_PASSWORD = "forgotten_password"  # noqa: S105 - a name
    NEW_ADDRESS = "new_address"
    PASSWORD_CHANGED = "password_changed"  # noqa: S105 - a name
    ADDRESS_CHANGED = "address_changed"
    NEW_KEY = "new_key"
    # A mail about a limited API key, which can export rosters.
    NEW_SENDING_KEY = "new_sending_key"
    NEW_PROGRAM = "new_program"
    NEW_BROWSER = "new_browser"
    FACTORS_CHANGED = "factors_changed"
    NEW_WEBHOOK = "new_webhook"
    NEW_SENDER = "new_sender"
    SENDER_FAILING = "sender_failing"
    SENDER_RECOVERED = "sender_recovered"
    MAILING_ALARM = "mailing_alarm"
    WEBHOOK_STOPPED = "webhook_stopped"
    KEY_EXPIRES = "key_expires"
    MEMBERS_OVER_QUOTA = "members_over_quota"
    IMPORT_ENDED = "import_ended"
    LOW_BALANCE = "low_balance"
    SEGMENT_PAUSED = "segment_paused"
    # Mails to the operator, which ``services.doctor`` enqueues.
    CHECKS_FAIL = "checks_fail"
    CHECKS_PASS = "checks_pass"  # noqa: S105 - a name
    # A mail with a link to a reader's preferences. ``services.subscriptions.preferences`` sends it.
    PREFERENCES = "preferences"


# The kinds of mail that anyone can request for any address.
_STRANGER_KINDS = (MailKind.REGISTER, MailKind.FORGOTTEN_PASSWORD, MailKind.NEW_ADDRESS)
# The purpose of the token in a link, the path of the linked page, and the person in the token.
_Link = tuple[Purpose, str, PersonId | None]


def enqueue_mail(
    uow: UnitOfWork,
    kind: MailKind,
    to: User | str,
    detail: str | None = None,
    *,
    limit: MailLimit | None = None,
    person_id: PersonId | None = None,
    source: bytes | None = None,
) -> None:
    """Enqueue a mail, unless the address has reached the limit.

    Args:
        to: a person or a normalised e-mail address.
        detail: a text that is inserted into the mail. The text must not come from a visitor without
            an account, because anybody could send spam in it.
        limit: ``None`` for a mail that is always sent.
        person_id: the id of the logged-in user who caused a mail to an address, if any.
        source: the digest of the network from which the mail was requested.
    """
    if isinstance(to, User):
        email = to.email
        person_id = to.id
    else:
        email = to
    if limit is not None and is_limit_reached(uow, limit, kind, email, detail):
        return
    mail = AccountMail(
        kind=kind, email=email, user_id=person_id, detail=detail, source_digest=source
    )
    uow.session.add(mail)
    uow.session.flush()
    enqueue_job(uow, SEND_ACCOUNT_MAIL, account_id=None, subject_id=mail.id)


def is_limit_reached(
    uow: UnitOfWork, limit: MailLimit, kind: MailKind, email: str, detail: str | None = None
) -> bool:
    query = select(func.count()).where(
        AccountMail.email == email,
        AccountMail.kind == kind,
        AccountMail.created_at > func.now() - limit.within,
    )
    if limit.per_detail:
        query = query.where(AccountMail.detail == detail)
    return (uow.session.scalar(query) or 0) >= limit.mails


def admit_stranger_mail(uow: UnitOfWork, request: AccountMail, email: str | None) -> bool:
    """Check the rate limits for a mail that anybody can request, and count the mail.

    A mail that is retried after a failure is counted only once.
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
    """Return a mail's template and its values, or ``None`` if no mail should be sent."""
    person = uow.session.scalar(select(User).where(User.email == request.email))
    has_account = person is not None and person.password_hash is not None
    template, link = _choose_template(request, person, has_account=has_account)
    if template is None:
        return None
    # Mails to account owners don't count against the limits per mailbox, because a stranger could
    # exhaust these limits to block the owner's mails.
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
            "webhooks_url": page(page_paths.WEBHOOKS_PATH),
            "senders_url": page(page_paths.SENDERS_PATH),
            "factors_url": page(page_paths.FACTORS_PATH),
            "imports_url": page(page_paths.IMPORTS_PATH),
            "credits_url": page(page_paths.CREDITS_PATH),
            "lists_url": page(page_paths.LISTS_PATH),
            "public_url": uow.settings.public_base,
        }
        return template, {"email": request.email, "detail": request.detail or "", **pages}
    purpose, path, person_id = link
    # The token of an undo link contains the time of the change, not of the mail. The mails about
    # two changes may be sent in the wrong order.
    created_at = request.created_at if purpose is Purpose.UNDO_ADDRESS else None
    secret = mailed_tokens.create_token(
        uow, purpose, person_id=person_id, email=request.email, created_at=created_at
    )
    return template, {"email": request.email, "url": page(path, token=secret)}


def _choose_template(
    request: AccountMail, person: User | None, *, has_account: bool
) -> tuple[str | None, _Link | None]:
    """Return the name of the template for a mail, and the link in the mail.

    If no mail should be sent, the name of the template is ``None``. Raises ``TransientError`` for a
    kind of mail that only a newer release knows.
    """
    if request.kind not in [*MailKind]:
        raise TransientError("Only a worker of a newer release can send this mail.")
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
            # A reader who has no password yet gets a registration link instead of a reset link.
            template = "register"
            link = (Purpose.REGISTER, page_paths.REGISTRATION_PATH, None)
        case MailKind.NEW_ADDRESS if person is not None and person.id == request.user_id:
            template = "address_taken"
        case MailKind.NEW_ADDRESS:
            # The mail doesn't reveal whether the new address already has an account. Only the page
            # that the mailed link opens reveals whether the address is taken.
            link = (Purpose.CHANGE_ADDRESS, page_paths.CONFIRM_EMAIL_PATH, request.user_id)
        case MailKind.ADDRESS_CHANGED:
            link = (Purpose.UNDO_ADDRESS, page_paths.UNDO_EMAIL_PATH, request.user_id)
    return template, link
