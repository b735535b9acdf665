"""Pages on which people register, reset a password or undo a change of their e-mail address.

Opening a mailed link changes nothing, because mail scanners open links.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
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
    count_wrong_code,
    is_factor_error,
    read_factor,
    status_of_error,
)
from api.bodies.page_forms import FormFields, FormOf
from api.client_details import client_address
from api.errors import STATUS_OF
from api.html.field_errors import place_message
from api.html.frame import redirect_to_query, render_page
from api.limits.bulkheads import PASSWORDS, RECORDS
from api.pages.account.keys import list_newest_keys, read_ticked_boxes, read_unticked_boxes
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
    page_paths,
    passwords,
    unsolicited_mail,
)
from services.accounts import registration as service
from services.accounts.account_mails import MailKind
from services.accounts.factors import passkeys
from services.accounts.factors.second_steps import SubmittedFactor
from services.senders import senders
from services.webhooks import webhook_endpoints
from storage.unit_of_work import UnitOfWork

router = APIRouter(include_in_schema=False, route_class=ThreadedRoute)

Sent = Annotated[str | None, Query()]
Token = Annotated[str, Query()]

# The values for the template of a page, such as the heading.
_PageTexts = dict[str, Any]
# A function that sets a user's password, and returns the user.
_SetPassword = Callable[..., User]

_REGISTER: _PageTexts = {
    "action": ChallengeAction.REGISTER,
    "heading": "Create an account",
    "text": "Enter your e-mail address. We’ll send you a link to choose a password.",
}
_FORGOTTEN: _PageTexts = {
    "action": ChallengeAction.FORGOTTEN,
    "heading": "Reset your password",
    "text": "Enter the e-mail address of your account. We’ll send you a link to choose a new"
    " password.",
}


@dataclass(frozen=True)
class _PasswordPage:
    """A page on which the recipient of a mailed link chooses a password.

    ``read_token`` returns the e-mail address to which a token was mailed. ``next_path`` is the page
    to which the person is redirected after the login.
    """

    texts: _PageTexts
    read_token: Callable[[UnitOfWork, str], str]
    next_path: str


_REGISTRATION = _PasswordPage(
    texts={
        "heading": "Finish creating your account",
        "button": "Create my account",
        "asks_name": True,
    },
    read_token=service.read_registration_link,
    # The overview of the console lists the first steps.
    next_path=page_paths.OVERVIEW_PATH,
)
_RESET = _PasswordPage(
    texts={"heading": "Choose a new password", "button": "Save and log in", "asks_name": False},
    read_token=service.read_reset_link,
    next_path=page_paths.ACCOUNT_PATH,
)


@router.get(page_paths.REGISTER_PATH, dependencies=[PUBLIC])
def show_registering(request: Request, state: StateOf, sent: Sent = None) -> Response:
    return _show_request(request, state, _REGISTER, sent)


@router.post(page_paths.REGISTER_PATH, dependencies=[LOGIN])
async def request_registration(request: Request, state: StateOf, form: FormOf) -> Response:
    """The response is the same for every address, so that nobody learns which addresses have
    accounts.
    """
    return await _request_mail(request, state, form, MailKind.REGISTER, _REGISTER)


@router.get(page_paths.FORGOTTEN_PATH, dependencies=[PUBLIC])
def show_forgotten(request: Request, state: StateOf, sent: Sent = None) -> Response:
    return _show_request(request, state, _FORGOTTEN, sent)


@router.post(page_paths.FORGOTTEN_PATH, dependencies=[LOGIN])
async def request_password(request: Request, state: StateOf, form: FormOf) -> Response:
    return await _request_mail(request, state, form, MailKind.FORGOTTEN_PASSWORD, _FORGOTTEN)


@router.get(page_paths.REGISTRATION_PATH, dependencies=[PUBLIC])
def show_registration(request: Request, state: StateOf, token: Token = "") -> Response:
    return _show_choice(request, state, _REGISTRATION, token)


@router.post(page_paths.REGISTRATION_PATH, dependencies=[LOGIN])
async def register_person(
    request: Request, state: StateOf, form: FormOf, token: Token = ""
) -> Response:
    register_account = partial(service.register_account, name=form.get("name", ""))
    return await _submit_choice(request, state, form, token, _REGISTRATION, register_account)


@router.get(page_paths.RESET_PATH, dependencies=[PUBLIC])
def show_reset(request: Request, state: StateOf, token: Token = "") -> Response:
    return _show_choice(request, state, _RESET, token)


@router.post(page_paths.RESET_PATH, dependencies=[LOGIN])
async def reset_password(
    request: Request, state: StateOf, form: FormOf, token: Token = ""
) -> Response:
    """Failed logins don't prevent a password reset, because the token identifies the user."""
    factor = read_factor(request, state, form)
    set_password = partial(recovery.reset_password, factor=factor, keep=read_unticked_boxes(form))
    return await _submit_choice(request, state, form, token, _RESET, set_password, factor=factor)


@router.get(page_paths.UNDO_EMAIL_PATH, dependencies=[PUBLIC])
def show_address_undo(
    request: Request, state: StateOf, uow: Transaction, token: Token = ""
) -> Response:
    email = service.read_undo_link(uow, token)
    return render_anonymous_page(request, state, "undo_email.html", token=token, email=email)


@router.post(page_paths.UNDO_EMAIL_PATH, dependencies=[LOGIN])
async def undo_address_change(
    request: Request, state: StateOf, form: FormOf, token: Token = ""
) -> Response:
    require_form_csrf(request, state, form)
    secret = form.get("token") or token
    await state.in_unit_of_work(lambda uow: service.read_undo_link(uow, secret))
    random_hash = await PASSWORDS.run(passwords.hash_password, secrets.token_urlsafe(32))
    reset_token = await state.in_unit_of_work(
        recovery.undo_address_change, secret, password_hash=random_hash
    )
    query = urlencode({"token": reset_token})
    return redirect_to_path(state, f"{page_paths.RESET_PATH}?{query}")


def _show_request(request: Request, state: State, texts: _PageTexts, sent: str | None) -> Response:
    return _render_request(request, state, texts) if sent is None else render_page("mailed.html")


def _render_request(request: Request, state: State, texts: _PageTexts, **values: Any) -> Response:
    values = {"email": "", "problem": None, "errors": {}, "widget": None, **values, **texts}
    provider = state.challenges.for_accounts
    if provider is not None:
        widget = WIDGETS[provider]
        site_key = state.challenges.challenge_for(provider).site_key
        values |= {"widget": widget, "other_sources": widget.policy, "site_key": site_key}
    return render_anonymous_page(request, state, "ask_mail.html", **values)


async def _request_mail(
    request: Request, state: State, form: FormFields, kind: MailKind, texts: _PageTexts
) -> Response:
    require_form_csrf(request, state, form)
    typed_address = form.get("email", "").strip()
    try:
        email = email_addresses.normalise_address(typed_address)
        # Check the challenge first, so that its failure doesn't reveal whether the address has an
        # account.
        provider = state.challenges.for_accounts
        if provider is not None:
            token = form.get(WIDGETS[provider].field, "")
            if not token:
                raise CHALLENGE_FAILED()
            response = ChallengeResponse(token, texts["action"], client_address(request))
            await state.challenges.challenge_for(provider).check(response)
    except DomainError as error:
        problem, errors = place_message(error)
        return _render_request(
            request,
            state,
            texts,
            status=STATUS_OF[error.kind],
            email=typed_address,
            problem=problem,
            errors=errors,
        )
    async with pad_duration():
        source = unsolicited_mail.source_digest(state.resources.keyring, client_address(request))
        limit = account_mails.HOURLY_LIMIT
        await state.in_unit_of_work(
            account_mails.enqueue_mail, kind, email, limit=limit, source=source
        )
    return redirect_to_query("sent=yes")


def _show_choice(request: Request, state: State, page: _PasswordPage, secret: str) -> Response:
    with state.resources.unit_of_work() as uow:
        email = page.read_token(uow, secret)
    return _render_choice(request, state, page.texts, token=secret, email=email)


def _render_choice(
    request: Request, state: State, texts: _PageTexts, *, email: str, **values: Any
) -> Response:
    credentials: dict[str, Any] = {
        "keys": [],
        "more_keys": 0,
        "passkeys": [],
        "endpoints": [],
        "senders": [],
        "asks_factor": False,
    }
    ticked = dict.fromkeys(
        ("ended_keys", "ended_passkeys", "ended_endpoints", "ended_senders"), True
    )
    form_cookie = obtain_form_cookie(request, state)
    passkey_options = None
    with state.resources.unit_of_work() as uow:
        person = accounts.find_user_by_email(uow, email)
        if person is not None:
            credentials["keys"], credentials["more_keys"] = list_newest_keys(uow, person.account_id)
            credentials["passkeys"] = passkeys.list_passkeys(uow, person.id)
            credentials["endpoints"] = webhook_endpoints.list_live_endpoints(uow, person.account_id)
            credentials["senders"] = senders.list_senders(uow, person.account_id)
            credentials["asks_factor"] = sessions.has_second_factor(uow, person.id)
            passkey_options = passkeys.build_request_options_for(uow, person.id, form_cookie)
    return render_anonymous_page(
        request,
        state,
        "new_password.html",
        form_cookie=form_cookie,
        has_passkey_script=passkey_options is not None,
        passkey_options=passkey_options,
        **{
            "email": email,
            "name": "",
            "problem": None,
            "errors": {},
            **credentials,
            **ticked,
            **values,
            **texts,
        },
    )


async def _submit_choice(
    request: Request,
    state: State,
    form: FormFields,
    token: str,
    page: _PasswordPage,
    set_password: _SetPassword,
    *,
    factor: SubmittedFactor | None = None,
) -> Response:
    require_form_csrf(request, state, form)
    secret = form.get("token") or token

    def find_account(uow: UnitOfWork) -> tuple[str, str | None]:
        email = page.read_token(uow, secret)
        person = accounts.find_user_by_email(uow, email)
        return email, None if person is None else person.name

    email, name = await state.in_unit_of_work(find_account)
    make_hash = partial(
        passwords.hash_password, form.get("password", ""), email, name, form.get("name")
    )
    attempt = None
    try:
        password_hash = await PASSWORDS.run(make_hash)
        attempt = await count_code(request, state, email, factor)

        def prove(uow: UnitOfWork) -> User:
            person = set_password(uow, secret=secret, password_hash=password_hash)
            logins.clear_attempts_of_address(
                uow, email=person.email, client=client_address(request)
            )
            if attempt is not None:
                logins.clear_attempt(uow, attempt)
            return person

        return await begin_session(
            request, state, page.next_path, prove, is_factor_verified=factor is not None
        )
    except DomainError as error:
        if error.kind is not Kind.INVALID and not is_factor_error(error):
            raise
        await count_wrong_code(state, attempt, error)
        problem, errors = place_message(error)
        render_again = partial(
            _render_choice,
            request,
            state,
            page.texts,
            email=email,
            token=secret,
            name=form.get("name", ""),
            status=status_of_error(error),
            problem=problem,
            errors=errors,
            **read_ticked_boxes(form),
        )
        response = await RECORDS.run(render_again)
        if error.retry_after is not None:
            response.headers["Retry-After"] = str(error.retry_after)
        return response
