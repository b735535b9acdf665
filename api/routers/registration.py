"""Pages for registering, and for a forgotten password: both lead on by a mailed link.

Opening a link changes nothing, since scanners follow links; sending its page's form does.
"""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from api.access.answer_timing import padded_duration
from api.access.identity import client_address
from api.access.page_sessions import (
    FormFields,
    FormOf,
    LoginCookies,
    anonymous_page,
    begin_session,
    page_session,
    redirect_logged_in,
    require_form_csrf,
)
from api.access.requirements import LOGIN, PUBLIC
from api.pages.frame import page, see_other
from api.parameters import StateOf
from api.request_ids import current_request_id
from api.state import State
from core.errors import DomainError, Kind
from core.keyring import Keyring
from services.people import account_mails, accounts, logins, page_urls, passwords, registration
from services.people.account_mails import MailKind
from storage.unit_of_work import UnitOfWork

# No operations of the API, so not in its document.
router = APIRouter(include_in_schema=False)

Sent = Annotated[str | None, Query()]
Token = Annotated[str, Query()]

_REGISTER: dict[str, Any] = {
    "heading": "Make an account",
    "text": "Tell us your e-mail address. We’ll mail you a link, by which you choose a password.",
    "button": "Send me the link",
}
_FORGOTTEN: dict[str, Any] = {
    "heading": "Get a new password",
    "text": "Tell us the e-mail address of your account. We’ll mail you a link, by which you choose"
    " a new password.",
    "button": "Send me the link",
}
_REGISTRATION: dict[str, Any] = {
    "heading": "Finish your registration",
    "button": "Make my account",
    "asks_name": True,
}
_RESET: dict[str, Any] = {
    "heading": "Choose a new password",
    "button": "Save and log in",
    "asks_name": False,
}


@router.get(page_urls.REGISTER_PATH, dependencies=[PUBLIC])
def show_registering(request: Request, state: StateOf, sent: Sent = None) -> Response:
    return _asking(request, state, _REGISTER, sent)


@router.post(page_urls.REGISTER_PATH, dependencies=[LOGIN])
async def ask_to_register(request: Request, state: StateOf, form: FormOf) -> Response:
    """Mail a link, or word that the address has an account; the answer is the same."""
    return await _ask(request, state, form, MailKind.REGISTER, _REGISTER)


@router.get(page_urls.FORGOTTEN_PATH, dependencies=[PUBLIC])
def show_forgotten(request: Request, state: StateOf, sent: Sent = None) -> Response:
    return _asking(request, state, _FORGOTTEN, sent)


@router.post(page_urls.FORGOTTEN_PATH, dependencies=[LOGIN])
async def ask_for_password(request: Request, state: StateOf, form: FormOf) -> Response:
    return await _ask(request, state, form, MailKind.FORGOTTEN_PASSWORD, _FORGOTTEN)


@router.get(page_urls.REGISTRATION_PATH, dependencies=[PUBLIC])
def show_registration(request: Request, state: StateOf, token: Token = "") -> Response:
    return _choosing(request, state, registration.read_registration, _REGISTRATION, token)


@router.post(page_urls.REGISTRATION_PATH, dependencies=[LOGIN])
async def register(request: Request, state: StateOf, form: FormOf, token: Token = "") -> Response:
    """Create the account of the person who got the mail, and log them in."""
    require_form_csrf(request, state, form)
    secret = form.get("token") or token
    read = registration.read_registration
    found = await _choice(request, state, form, read, _REGISTRATION, secret)
    if isinstance(found, Response):
        return found

    def finish(uow: UnitOfWork, keyring: Keyring) -> registration.AccountIdentity:
        name = form.get("name", "")
        return registration.register(uow, keyring, secret, name=name, password_hash=found)

    return await _finished(request, state, finish)


@router.get(page_urls.RESET_PATH, dependencies=[PUBLIC])
def show_reset(request: Request, state: StateOf, token: Token = "") -> Response:
    return _choosing(request, state, registration.read_reset, _RESET, token)


@router.post(page_urls.RESET_PATH, dependencies=[LOGIN])
async def reset(request: Request, state: StateOf, form: FormOf, token: Token = "") -> Response:
    """Set the new password and log the person in, who has the mail to prove it, despite a pause."""
    require_form_csrf(request, state, form)
    secret = form.get("token") or token
    found = await _choice(request, state, form, registration.read_reset, _RESET, secret)
    if isinstance(found, Response):
        return found
    request_id = current_request_id()

    def finish(uow: UnitOfWork, keyring: Keyring) -> registration.AccountIdentity:
        return registration.reset(uow, keyring, secret, password_hash=found, request_id=request_id)

    return await _finished(request, state, finish)


_Words = dict[str, Any]
_Read = Callable[[UnitOfWork, Keyring, str], str]
_Finish = Callable[[UnitOfWork, Keyring], registration.AccountIdentity]


def _asking(request: Request, state: State, words: _Words, sent: str | None) -> Response:
    if sent is not None:
        return page("mailed.html")
    return anonymous_page(request, state, "ask_mail.html", problem=None, email="", **words)


async def _ask(
    request: Request, state: State, form: FormFields, kind: MailKind, words: _Words
) -> Response:
    require_form_csrf(request, state, form)
    typed = form.get("email", "").strip()
    try:
        email = accounts.normalise_email(typed)
    except DomainError as error:
        return anonymous_page(
            request, state, "ask_mail.html", status=422, problem=error.message, email=typed, **words
        )
    async with padded_duration():
        request_id = current_request_id()
        await state.in_unit_of_work(
            lambda uow: account_mails.request_mail(uow, kind, email, request_id=request_id)
        )
    return see_other("sent=yes")


def _choosing(request: Request, state: State, read: _Read, words: _Words, secret: str) -> Response:
    with state.resources.unit_of_work() as uow:
        email = read(uow, state.resources.keyring, secret)
    return _choice_page(request, state, words, secret, email)


def _choice_page(
    request: Request,
    state: State,
    words: _Words,
    secret: str,
    email: str,
    *,
    name: str = "",
    problem: str | None = None,
) -> Response:
    return anonymous_page(
        request,
        state,
        "new_password.html",
        status=422 if problem else 200,
        token=secret,
        email=email,
        name=name,
        problem=problem,
        **words,
    )


async def _choice(
    request: Request, state: State, form: FormFields, read: _Read, words: _Words, secret: str
) -> str | Response:
    """The hash of the chosen password, or the page once more with the password's problem."""
    email = await state.in_unit_of_work(lambda uow: read(uow, state.resources.keyring, secret))
    try:
        return await state.hashing_pool.run(partial(passwords.make, form.get("password", "")))
    except DomainError as error:
        if error.kind is not Kind.INVALID:
            raise
        name, problem = form.get("name", ""), error.message
        return _choice_page(request, state, words, secret, email, name=name, problem=problem)


async def _finished(request: Request, state: State, finish: _Finish) -> Response:
    before = await run_in_threadpool(page_session, request, state)

    def finish_and_log_in(uow: UnitOfWork) -> LoginCookies:
        changed = finish(uow, state.resources.keyring)
        client = client_address(request)
        logins.reset_attempts(uow, state.resources.keyring, email=changed.email, client=client)
        return begin_session(
            request, state, uow, user_id=changed.user_id, email=changed.email, before=before
        )

    cookies = await state.in_unit_of_work(finish_and_log_in)
    return redirect_logged_in(state, cookies, page_urls.ACCOUNT_PATH)
