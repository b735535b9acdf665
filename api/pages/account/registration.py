"""Pages for registering, and for a forgotten password: both continue by a mailed link.

Opening a link changes nothing, since scanners follow links; sending its page's form does.
"""

import secrets
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from api.auth.csrf import obtain_form_cookie, require_form_csrf
from api.auth.form_pages import render_anonymous_page
from api.auth.logins import begin_session
from api.auth.redirects import redirect_to_path
from api.auth.requirements import LOGIN, PUBLIC
from api.auth.second_factors import (
    count_code,
    is_problem,
    note_wrong_code,
    problem_status,
    shown_factor,
)
from api.bodies.page_forms import FormFields, FormOf
from api.browsers import client_address
from api.errors import STATUS_OF
from api.html.frame import page, see_other
from api.limits.bulkheads import PASSWORDS, RECORDS
from api.pages.account.keys import ended_boxes, keys_to_ask, unticked
from api.response_timing import pad_duration
from api.route_classes import ThreadedRoute
from api.state import State, StateOf, Transaction
from core.errors import DomainError, Kind
from core.errors.mailing import CHALLENGE_FAILED
from integrations.challenges.port import ChallengeAction, ChallengeResponse
from integrations.challenges.siteverify import WIDGETS
from models import User
from services import recovery
from services.access import sessions
from services.accounts import (
    account_mails,
    accounts,
    email_addresses,
    logins,
    mailed_tokens,
    passwords,
    unsolicited_mail,
)
from services.accounts import registration as service
from services.accounts.account_mails import MailKind
from services.accounts.factors import passkeys
from services.accounts.factors.second_steps import ShownFactor
from services.webhooks import webhook_endpoints
from storage.unit_of_work import UnitOfWork

router = APIRouter(include_in_schema=False, route_class=ThreadedRoute)

Sent = Annotated[str | None, Query()]
Token = Annotated[str, Query()]

_Words = dict[str, Any]
_Read = Callable[[UnitOfWork, str], str]
_Finish = Callable[..., User]

_REGISTER: _Words = {
    "action": ChallengeAction.REGISTER,
    "heading": "Make an account",
    "text": "Tell us your e-mail address. We’ll mail you a link, by which you choose a password.",
}
_FORGOTTEN: _Words = {
    "action": ChallengeAction.FORGOTTEN,
    "heading": "Get a new password",
    "text": "Tell us the e-mail address of your account. We’ll mail you a link, by which you choose"
    " a new password.",
}
_REGISTRATION: _Words = {
    "heading": "Finish your registration",
    "button": "Make my account",
    "asks_name": True,
}
_RESET: _Words = {
    "heading": "Choose a new password",
    "button": "Save and log in",
    "asks_name": False,
}


@router.get(mailed_tokens.REGISTER_PATH, dependencies=[PUBLIC])
def show_registering(request: Request, state: StateOf, sent: Sent = None) -> Response:
    return page("mailed.html") if sent is not None else _ask_page(request, state, _REGISTER)


@router.post(mailed_tokens.REGISTER_PATH, dependencies=[LOGIN])
async def ask_to_register(request: Request, state: StateOf, form: FormOf) -> Response:
    """Mail a link, or that the address has an account; the answer is the same."""
    return await _ask(request, state, form, MailKind.REGISTER, _REGISTER)


@router.get(mailed_tokens.FORGOTTEN_PATH, dependencies=[PUBLIC])
def show_forgotten(request: Request, state: StateOf, sent: Sent = None) -> Response:
    return page("mailed.html") if sent is not None else _ask_page(request, state, _FORGOTTEN)


@router.post(mailed_tokens.FORGOTTEN_PATH, dependencies=[LOGIN])
async def ask_for_password(request: Request, state: StateOf, form: FormOf) -> Response:
    return await _ask(request, state, form, MailKind.FORGOTTEN_PASSWORD, _FORGOTTEN)


@router.get(mailed_tokens.REGISTRATION_PATH, dependencies=[PUBLIC])
def show_registration(request: Request, state: StateOf, token: Token = "") -> Response:
    return _choosing(request, state, service.read_registration, _REGISTRATION, token)


@router.post(mailed_tokens.REGISTRATION_PATH, dependencies=[LOGIN])
async def register(request: Request, state: StateOf, form: FormOf, token: Token = "") -> Response:
    name = form.get("name", "")
    finish = partial(service.register, name=name)
    read = service.read_registration
    return await _choose(request, state, form, token, read, _REGISTRATION, finish)


@router.get(mailed_tokens.RESET_PATH, dependencies=[PUBLIC])
def show_reset(request: Request, state: StateOf, token: Token = "") -> Response:
    return _choosing(request, state, service.read_reset, _RESET, token)


@router.post(mailed_tokens.RESET_PATH, dependencies=[LOGIN])
async def reset(request: Request, state: StateOf, form: FormOf, token: Token = "") -> Response:
    """Set the new password and log the person in, who has the mail to prove it, despite a pause."""
    shown = shown_factor(request, state, form)
    finish = partial(recovery.reset_password, shown=shown, keep=unticked(form))
    return await _choose(request, state, form, token, service.read_reset, _RESET, finish, shown)


@router.get(mailed_tokens.UNDO_EMAIL_PATH, dependencies=[PUBLIC])
def show_undo(request: Request, state: StateOf, uow: Transaction, token: Token = "") -> Response:
    email = service.read_undo(uow, token)
    return render_anonymous_page(request, state, "undo_email.html", token=token, email=email)


@router.post(mailed_tokens.UNDO_EMAIL_PATH, dependencies=[LOGIN])
async def undo_address(
    request: Request, state: StateOf, form: FormOf, token: Token = ""
) -> Response:
    """Give the account back to the person with the earlier address, who chooses a password next."""
    require_form_csrf(request, state, form)
    secret = form.get("token") or token
    await state.in_unit_of_work(lambda uow: service.read_undo(uow, secret))
    unknown = await PASSWORDS.run(passwords.make, secrets.token_urlsafe(32))
    made = await state.in_unit_of_work(recovery.undo_address_change, secret, password_hash=unknown)
    query = urlencode({"token": made})
    return redirect_to_path(state, f"{mailed_tokens.RESET_PATH}?{query}")


def _ask_page(request: Request, state: State, words: _Words, **values: Any) -> Response:
    values = {"email": "", "problem": None, "widget": None, **values, **words}
    provider = state.challenges.for_accounts
    if provider is not None:
        widget, site_key = WIDGETS[provider], state.challenges.challenge_for(provider).site_key
        values |= {"widget": widget, "foreign": widget.policy, "site_key": site_key}
    return render_anonymous_page(request, state, "ask_mail.html", **values)


async def _ask(
    request: Request, state: State, form: FormFields, kind: MailKind, words: _Words
) -> Response:
    require_form_csrf(request, state, form)
    typed = form.get("email", "").strip()
    try:
        email = email_addresses.normalise(typed)
        # Nothing is looked up before: neither the answer nor its time tells of the address.
        provider = state.challenges.for_accounts
        if provider is not None:
            token = form.get(WIDGETS[provider].field, "")
            if not token:
                raise CHALLENGE_FAILED()
            answer = ChallengeResponse(token, words["action"], client_address(request))
            await state.challenges.challenge_for(provider).check(answer)
    except DomainError as error:
        told = {"email": typed, "problem": error.message}
        return _ask_page(request, state, words, status=STATUS_OF[error.kind], **told)
    async with pad_duration():
        source = unsolicited_mail.source_digest(state.resources.keyring, client_address(request))
        await state.in_unit_of_work(account_mails.request_mail, kind, email, source=source)
    return see_other("sent=yes")


def _choosing(request: Request, state: State, read: _Read, words: _Words, secret: str) -> Response:
    with state.resources.unit_of_work() as uow:
        email = read(uow, secret)
    return _choice_page(request, state, words, token=secret, email=email)


def _choice_page(
    request: Request, state: State, words: _Words, *, email: str, **values: Any
) -> Response:
    asked: dict[str, Any] = {"keys": [], "more_keys": 0, "passkeys": [], "endpoints": []}
    asked["asks_factor"] = False
    ended: _Words = {"ended_keys": True, "ended_passkeys": True, "ended_endpoints": True}
    form_cookie, options = obtain_form_cookie(request, state), None
    with state.resources.unit_of_work() as uow:
        person = accounts.find_by_email(uow, email)
        if person is not None:
            asked["keys"], asked["more_keys"] = keys_to_ask(uow, person.id)
            asked["passkeys"] = passkeys.list_of(uow, person.id)
            asked["endpoints"] = webhook_endpoints.live_of(uow, person.id)
            asked["asks_factor"] = sessions.is_asked(uow, person.id)
            options = passkeys.options_of_person(uow, person.id, form_cookie)
    return render_anonymous_page(
        request,
        state,
        "new_password.html",
        form_cookie=form_cookie,
        scripted=options is not None,
        passkey_options=options,
        **{"email": email, "name": "", "problem": None, **asked, **ended, **values, **words},
    )


async def _choose(
    request: Request,
    state: State,
    form: FormFields,
    token: str,
    read: _Read,
    words: _Words,
    finish: _Finish,
    shown: ShownFactor | None = None,
) -> Response:
    """Log in the person whom ``finish`` gives the chosen password, or show the page again.

    ``shown``: the second factor, if ``finish`` asks for it.
    """
    require_form_csrf(request, state, form)
    secret = form.get("token") or token

    def find(uow: UnitOfWork) -> tuple[str, str | None]:
        email = read(uow, secret)
        person = accounts.find_by_email(uow, email)
        return email, None if person is None else person.name

    email, name = await state.in_unit_of_work(find)
    make = partial(passwords.make, form.get("password", ""), email, name, form.get("name"))
    attempt = None
    try:
        made = await PASSWORDS.run(make)
        attempt = await count_code(request, state, email, shown)

        def prove(uow: UnitOfWork) -> User:
            person = finish(uow, secret=secret, password_hash=made)
            logins.reset_attempts(uow, email=person.email, client=client_address(request))
            if attempt is not None:
                logins.clear(uow, attempt)
            return person

        path, factor_shown = mailed_tokens.ACCOUNT_PATH, shown is not None
        return await begin_session(request, state, path, prove, factor_shown=factor_shown)
    except DomainError as error:
        if error.kind is not Kind.INVALID and not is_problem(error):
            raise
        await note_wrong_code(state, attempt, error)
        again = partial(
            _choice_page,
            request,
            state,
            words,
            email=email,
            token=secret,
            name=form.get("name", ""),
            status=problem_status(error),
            problem=error.message,
            **ended_boxes(form),
        )
        reply = await RECORDS.run(again)
        if error.retry_after is not None:
            reply.headers["Retry-After"] = str(error.retry_after)
        return reply
