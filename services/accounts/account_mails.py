"""Renders every mail that Pressroom sends, and sends the mails about an account by durable jobs.

All templates are in the folder ``templates`` of this package, including templates of mails about
lists, such as ``confirm_subscription.txt``.

A request about an account does the same work for each address, and only the worker looks up whose
address it is. The response and its duration therefore don't reveal who has an account.
"""

from collections.abc import Callable
from datetime import timedelta
from enum import StrEnum
from functools import cache, partial

from jinja2 import Environment, PackageLoader
from sqlalchemy import func, select

from core.languages import reader_languages
from core.languages.reader_languages import create_templates
from core.queues import Queue
from core.scopes import Scope
from integrations.mail.port import Mail, Mailer
from models import AccountMail, User
from services.accounts import mailed_tokens, page_paths, unsolicited_mail
from services.accounts.mailed_tokens import Purpose
from services.jobs.kinds import JobKind, register_kind
from services.jobs.lease import Lease
from services.jobs.outbox import enqueue_job
from services.jobs.transitions import complete_job
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork


@cache
def _templates(language: str) -> Environment:
    return create_templates(language, PackageLoader("services.accounts"))


def render_mail(
    template: str,
    *,
    to: str,
    key: str,
    language: str | None = None,
    sender_name: str | None = None,
    headers: dict[str, str] | None = None,
    **values: str | bool | None,
) -> Mail:
    """The mail of ``templates/<template>.txt``, whose first line is the subject, and ``.html``.

    ``language``: that of a reader, if it is known; owners and operators read English.
    """
    templates = _templates(reader_languages.available_language(language))

    def fill(name: str) -> str:
        return templates.get_template(name).render(values)

    subject, _, text = fill(f"{template}.txt").partition("\n")
    return Mail(
        to=to,
        subject=subject.strip(),
        text=text.strip() + "\n",
        html=fill(f"{template}.html"),
        sender_name=sender_name,
        headers=headers or {},
        key=key,
    )


def _mailer(resources: Resources) -> Mailer:
    from integrations.mail import registry  # for workers alone

    return registry.create_mailer(resources.settings)


def mail_kind(name: str, send: Callable[[Resources, Lease, Mailer], None]) -> JobKind:
    """Register a kind of job that sends one mail."""
    return register_kind(
        JobKind(
            name=name,
            run=lambda resources, lease: send(resources, lease, resources.shared(_mailer)),
            queue=Queue.MAIL,
            scope=Scope.SUBSCRIPTION_FULL,
            retryable=True,
        )
    )


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
    # To readers, by a job of its own (`services/subscriptions/preferences/link_mails.py`).
    PREFERENCES = "preferences"


# Anybody can have these sent to any address.
_FOR_STRANGERS = (MailKind.REGISTER, MailKind.FORGOTTEN_PASSWORD, MailKind.NEW_ADDRESS)
# A stranger can enter another person's address, so the mails to an address are limited.
MAIL_LIMIT_WINDOW = timedelta(hours=1)
MAX_MAILS_PER_ADDRESS = 3
ACCOUNT_MAIL_RETENTION = timedelta(days=1)


def request_mail(
    uow: UnitOfWork,
    kind: MailKind,
    email: str,
    *,
    user_id: int | None = None,
    detail: str | None = None,
    source: bytes | None = None,
) -> None:
    """Send a mail to this address, unless it got as many of this kind as the limit allows.

    ``email`` is normalised; ``user_id`` is the user who sent the request, when they are logged in.
    ``detail`` stands in the mail, so it holds no word that a stranger may choose. ``source`` is the
    digest of the network that the request came from (``mail_bounds``).
    """
    if not got_enough(uow, kind, email):
        enqueue_mail(uow, kind, email, user_id=user_id, detail=detail, source=source)


def request_mail_to(uow: UnitOfWork, kind: MailKind, person: User, detail: str) -> None:
    """Request a mail to the person's current address, within the limit of its kind."""
    request_mail(uow, kind, person.email, user_id=person.id, detail=detail)


def got_enough(uow: UnitOfWork, kind: MailKind, email: str, *, detail: str | None = None) -> bool:
    """Tell whether the limit of mails of this kind, with this ``detail`` if given, is reached."""
    lately = select(func.count()).where(
        AccountMail.email == email,
        AccountMail.kind == kind,
        AccountMail.created_at > func.now() - MAIL_LIMIT_WINDOW,
    )
    if detail is not None:
        lately = lately.where(AccountMail.detail == detail)
    return (uow.session.scalar(lately) or 0) >= MAX_MAILS_PER_ADDRESS


def enqueue_mail(
    uow: UnitOfWork,
    kind: MailKind,
    email: str,
    *,
    user_id: int | None,
    detail: str | None = None,
    source: bytes | None = None,
) -> None:
    """Send a mail that the person must get, without the limit of its kind."""
    about = {"user_id": user_id, "detail": detail, "source_digest": source}
    mail = AccountMail(kind=kind, email=email, **about)
    uow.session.add(mail)
    uow.session.flush()
    enqueue_job(uow, SEND_ACCOUNT_MAIL, user_id=None, subject_id=mail.id)


def mail_person(uow: UnitOfWork, kind: MailKind, person: User, detail: str | None = None) -> None:
    """Enqueue a mail to the person's current address, without the limit of its kind."""
    enqueue_mail(uow, kind, person.email, user_id=person.id, detail=detail)


def admit(uow: UnitOfWork, asked: AccountMail, email: str | None) -> bool:
    """Count a stranger's mail once, whatever the attempts to send it; False: it is one too many."""
    if asked.admitted_at is not None:
        return True
    bounds = unsolicited_mail.choose_bounds(uow.settings, asked.source_digest, email=email)
    is_admitted = unsolicited_mail.admit_mail(uow, bounds)
    if is_admitted:
        asked.admitted_at = func.now()
    return is_admitted


def send(resources: Resources, lease: Lease, mailer: Mailer) -> None:
    with resources.unit_of_work() as uow:
        asked = uow.session.get(AccountMail, lease.subject_id)
        filled = None if asked is None else _filled_template(uow, asked)
        if asked is None or filled is None:
            complete_job(uow, lease, {"sent": False})
            return
        template, values = filled
        key = f"job-{lease.job_id}"
        mail = render_mail(template, to=asked.email, key=key, headers=None, **values)
    mailer.send(mail)
    with resources.unit_of_work() as uow:
        sent = uow.session.get(AccountMail, asked.id)
        if sent is not None:
            sent.sent_at = func.now()
        complete_job(uow, lease, {"sent": True})


SEND_ACCOUNT_MAIL = mail_kind("account.mail", send)


# The purpose of a mailed token, the page of its link, and the person whom it is about.
_Link = tuple[Purpose, str, int | None]


def _filled_template(uow: UnitOfWork, asked: AccountMail) -> tuple[str, dict[str, str]] | None:
    """The mail's template and the values filled into it; ``None``: nothing is sent."""
    person = uow.session.scalar(select(User).where(User.email == asked.email))
    has_account = person is not None and person.password_hash is not None
    template, link = _template(asked, person, has_account=has_account)
    if template is None:
        return None
    # No stranger can use up what a person with an account needs to get back into it.
    email = None if has_account else asked.email
    if asked.kind in _FOR_STRANGERS and not admit(uow, asked, email):
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
        return template, {"email": asked.email, "detail": asked.detail or "", **pages}
    purpose, path, user_id = link
    # Workers may send two mails in another order than that of the changes that they undo.
    asked_at = asked.created_at if purpose is Purpose.UNDO_ADDRESS else None
    secret = mailed_tokens.create_token(
        uow, purpose, user_id=user_id, email=asked.email, asked_at=asked_at
    )
    return template, {"url": page(path, token=secret)}


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
            link = (Purpose.RESET_PASSWORD, page_paths.RESET_PATH, person.id)
        case MailKind.REGISTER | MailKind.FORGOTTEN_PASSWORD:
            # Also for a reader without a password: opening the link proves that they have the
            # address.
            template = "register"
            link = (Purpose.REGISTER, page_paths.REGISTRATION_PATH, None)
        case MailKind.NEW_ADDRESS if person is not None and person.id == asked.user_id:
            template = "address_taken"
        case MailKind.NEW_ADDRESS:
            # The same mail for every address: only who proves that it is theirs hears whose it is.
            link = (Purpose.CHANGE_ADDRESS, page_paths.CONFIRM_EMAIL_PATH, asked.user_id)
        case MailKind.ADDRESS_CHANGED:
            link = (Purpose.UNDO_ADDRESS, page_paths.UNDO_EMAIL_PATH, asked.user_id)
    return template, link
