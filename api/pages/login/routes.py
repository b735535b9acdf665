"""Pages for logging in and out."""

import re
from functools import partial
from http import HTTPStatus
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response

from api.auth import second_factors
from api.auth.csrf import obtain_form_cookie, require_form_csrf
from api.auth.form_pages import render_anonymous_page
from api.auth.logins import begin_session, identify_browser, render_second_step, verify_password
from api.auth.page_sessions import find_page_session
from api.auth.redirects import read_local_path, redirect_to_path
from api.auth.requirements import LOGIN, PUBLIC, OptionalSessionForm
from api.bodies.page_forms import FormFields, FormOf
from api.client_details import browser_name
from api.cookies import FIRST_STEP_COOKIE, FORM_COOKIE, SESSION_COOKIE
from api.limits.bulkheads import RECORDS
from api.response_timing import pad_duration
from api.route_classes import ThreadedRoute
from api.state import State, StateOf, Transaction
from core.errors import DomainError, Kind, access, people
from services.access import sessions
from services.accounts import accounts, logins, page_paths, registration
from services.accounts.factors import passkeys, second_steps

router = APIRouter(include_in_schema=False, route_class=ThreadedRoute)

# Maps the ends of paths to the actions that need a recent login. The login page names the action.
_PROTECTED_ACTIONS = {
    re.compile(path + r"\Z"): words
    for path, words in {
        r"/keys/new|/send/key": "create an API key",
        r"/webhooks/new": "create a webhook",
        r"/webhooks/\w+/(change|state)": "change a webhook",
        r"/webhooks/\w+/rotate": "replace the secret of a webhook",
        r"/senders/new": "create a sender",
        r"/senders/\w+/rotate": "replace the secret of a sender",
        r"/oauth/authorize": "give an app access to your account",
        r"/account/password": "change your password",
        r"/account/email(/confirm)?": "change your e-mail address",
        r"/account/factors(/\w+)?": "change your second factors",
        r"/lists/\w+/export": "export members",
        r"/exports/\w+/file": "download exported members",
        r"/bulk-actions/new": "remove members",
        r"/imports/\w+/undo": "undo an import",
        r"/imports/\w+/not-added": "download the rows that were not imported",
        r"/images/\w+/link": "create a link to a private image",
        r"/operators/\w+(/\w+)?": "make a change as an operator",
    }.items()
}


@router.get(page_paths.LOGIN_PATH, dependencies=[PUBLIC])
def show_login(
    request: Request,
    state: StateOf,
    next: Annotated[str | None, Query()] = None,  # noqa: A002
    again: Annotated[str | None, Query()] = None,
) -> Response:
    """Redirect a logged-in user to the page ``next``, unless ``again`` is set."""
    member = find_page_session(request, state)
    fields = {"next": next or ""}
    if member is not None:
        if again is None:
            return redirect_to_path(state, read_local_path(next) or page_paths.OVERVIEW_PATH)
        with state.resources.unit_of_work() as uow:
            fields["email"] = accounts.get_user(uow, member.person_id).email
        fields["again"] = again
    return _render_login(request, state, fields)


@router.post(page_paths.LOGIN_PATH, dependencies=[LOGIN])
async def log_in(request: Request, state: StateOf, form: FormOf) -> Response:
    """An unknown e-mail address gets the same response in the same time as a wrong password."""
    require_form_csrf(request, state, form)
    email = form.get("email", "")
    password = form.get("password", "")
    path = read_local_path(form.get("next")) or page_paths.OVERVIEW_PATH
    try:
        async with pad_duration():
            attempt, check = await verify_password(request, state, email, password)
            prove = partial(
                logins.accept_password,
                attempt=attempt,
                check=check,
                browser=browser_name(request.headers.get("user-agent")),
            )
            return await begin_session(request, state, path, prove)
    except DomainError as error:
        if error.code == people.PASSWORD_WRONG.code:
            problem = "Wrong e-mail address or password."
            if "again" in form:
                problem = "Wrong password."
            return _render_login(request, state, form, problem, HTTPStatus.FORBIDDEN)
        if error.kind is not Kind.RATE_LIMITED:
            raise
        seconds = error.retry_after or 1
        wait = f"{seconds} seconds" if seconds < 120 else f"{round(seconds / 60)} minutes"  # noqa: PLR2004
        problem = (
            f"Too many failed logins. Try again in {wait}, or reset your password to log in "
            "right away."
        )
        response = _render_login(request, state, form, problem, HTTPStatus.TOO_MANY_REQUESTS)
        response.headers["Retry-After"] = str(seconds)
        return response


@router.post(page_paths.PASSKEY_LOGIN_PATH, dependencies=[LOGIN])
async def log_in_by_passkey(request: Request, state: StateOf, form: FormOf) -> Response:
    """No password is required, because the user's device has verified the user."""
    require_form_csrf(request, state, form)
    path = read_local_path(form.get("next")) or page_paths.OVERVIEW_PATH
    prove = partial(
        second_steps.log_in_by_passkey,
        form_cookie=state.cookies.read(request, FORM_COOKIE) or "",
        answer=form.get("passkey", ""),
        browser=identify_browser(request, state),
    )
    try:
        return await begin_session(request, state, path, prove, is_factor_verified=True)
    except DomainError as error:
        if error.code != people.PASSKEY_INVALID.code:
            raise
        problem = "No account has this passkey. Log in with your password."
        return _render_login(request, state, form, problem, HTTPStatus.FORBIDDEN)


@router.get(page_paths.LOGIN_LINK_PATH, dependencies=[PUBLIC])
def show_login_link(
    request: Request, state: StateOf, uow: Transaction, token: Annotated[str, Query()] = ""
) -> Response:
    """Opening the link doesn't use it, because programs open links to show a preview."""
    email = registration.read_login_link(uow, token)
    return render_anonymous_page(request, state, "login_link.html", token=token, email=email)


@router.post(page_paths.LOGIN_LINK_PATH, dependencies=[LOGIN])
async def log_in_by_link(request: Request, state: StateOf, form: FormOf) -> Response:
    require_form_csrf(request, state, form)
    prove = partial(
        registration.log_in_by_link,
        secret=form.get("token", ""),
        browser=identify_browser(request, state),
    )
    return await begin_session(request, state, page_paths.OVERVIEW_PATH, prove)


@router.post(page_paths.LOGOUT_PATH)
def log_out(state: StateOf, uow: Transaction, session: OptionalSessionForm) -> Response:
    if session is not None and session.caller.session_id is not None:
        sessions.revoke_session(uow, session.caller.session_id)
    response = redirect_to_path(state, page_paths.LOGIN_PATH)
    state.cookies.delete(response, SESSION_COOKIE)
    return response


def describe_protected_action(path: str | None) -> str:
    """Return the action of the page at ``path`` in words, such as "export members"."""
    plain_path = (path or "").partition("?")[0]
    words = (words for end, words in _PROTECTED_ACTIONS.items() if end.search(plain_path))
    return next(words, "continue")


def _render_login(
    request: Request, state: State, form: FormFields, problem: str | None = None, status: int = 200
) -> Response:
    form_cookie = obtain_form_cookie(request, state)
    next_path = read_local_path(form.get("next"))
    return render_anonymous_page(
        request,
        state,
        "login.html",
        status=status,
        form_cookie=form_cookie,
        has_passkey_script=True,
        passkey_options=passkeys.build_request_options(state.resources.settings, form_cookie),
        problem=problem,
        next=next_path,
        email=form.get("email", ""),
        again="again" in form,
        action=describe_protected_action(next_path),
    )


@router.get(page_paths.SECOND_STEP_PATH, dependencies=[PUBLIC])
def show_second_step(
    request: Request,
    state: StateOf,
    next: Annotated[str | None, Query()] = None,  # noqa: A002
) -> Response:
    return _render_second_step(request, state, {"next": next or ""})


@router.post(page_paths.SECOND_STEP_PATH, dependencies=[LOGIN])
async def complete_second_step(request: Request, state: StateOf, form: FormOf) -> Response:
    require_form_csrf(request, state, form)
    path = read_local_path(form.get("next")) or page_paths.OVERVIEW_PATH
    factor = second_factors.read_factor(request, state, form)
    first_step = _read_first_step(request, state)
    attempt = None
    try:
        email = await state.in_unit_of_work(
            lambda uow: second_steps.read_first_step(uow, first_step, factor.form_cookie).email
        )
        attempt = await second_factors.count_code(request, state, email, factor)
        prove = partial(
            second_steps.complete_second_step,
            first_step=first_step,
            factor=factor,
            attempt=attempt,
            browser=identify_browser(request, state),
        )
        return await begin_session(request, state, path, prove, is_factor_verified=True)
    except DomainError as error:
        if not second_factors.is_factor_error(error):
            raise
        await second_factors.count_wrong_code(state, attempt, error)
        return await RECORDS.run(_render_second_step, request, state, form, error)


def _render_second_step(
    request: Request, state: State, form: FormFields, error: DomainError | None = None
) -> Response:
    """Render the form, or redirect to the login page if the password hasn't been verified."""
    path = read_local_path(form.get("next")) or page_paths.OVERVIEW_PATH
    form_cookie = state.cookies.read(request, FORM_COOKIE) or ""
    try:
        with state.resources.unit_of_work() as uow:
            first_step = _read_first_step(request, state)
            person = second_steps.read_first_step(uow, first_step, form_cookie)
            options = passkeys.build_request_options_for(uow, person.id, form_cookie)
    except DomainError as problem:
        if problem.code != access.AUTH_SECOND_FACTOR.code:
            raise
        query = urlencode({"next": path})
        return redirect_to_path(state, f"{page_paths.LOGIN_PATH}?{query}")
    return render_second_step(
        request, state, options, form_cookie=form_cookie, path=path, error=error
    )


def _read_first_step(request: Request, state: State) -> str:
    return state.cookies.read(request, FIRST_STEP_COOKIE) or ""
