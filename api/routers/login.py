"""The login page and logging out. Programs don't log in: they have keys and tokens."""

from functools import partial
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from api.access.answer_timing import padded_duration
from api.access.browsers import local_path
from api.access.identity import client_address
from api.access.page_sessions import (
    FormFields,
    FormOf,
    LoginCookies,
    anonymous_page,
    begin_session,
    page_session,
    page_session_of_form,
    redirect_logged_in,
    redirect_to_path,
    require_form_csrf,
)
from api.access.requirements import LOGIN, PUBLIC
from api.parameters import StateOf
from api.state import State
from core.errors import DomainError, Kind
from services.access import sessions
from services.people import logins, passwords
from services.people.logins import Attempt
from services.people.page_urls import ACCOUNT_PATH, LOGIN_PATH, LOGOUT_PATH

# No operations of the API, so not in its document.
router = APIRouter(include_in_schema=False)


@router.get(LOGIN_PATH, dependencies=[PUBLIC])
def show_login(
    request: Request,
    state: StateOf,
    next: Annotated[str | None, Query()] = None,  # noqa: A002
) -> Response:
    """The form; a person who is logged in already is redirected to where it would lead."""
    if page_session(request, state) is not None:
        return redirect_to_path(state, local_path(next) or ACCOUNT_PATH)
    return _form(request, state, {"next": next or ""})


@router.post(LOGIN_PATH, dependencies=[LOGIN])
async def log_in(request: Request, state: StateOf, form: FormOf) -> Response:
    """Begin a session. Answer and duration are the same for an address without an account."""
    require_form_csrf(request, state, form)
    try:
        async with padded_duration():
            cookies = await _log_in(request, state, form)
    except DomainError as error:
        if error.kind is not Kind.RATE_LIMITED:
            raise
        return _paused(request, state, form, error)
    if cookies is None:
        problem = "This address and this password don’t belong together."
        return _form(request, state, form, problem, HTTPStatus.FORBIDDEN)
    return redirect_logged_in(state, cookies, local_path(form.get("next")) or ACCOUNT_PATH)


@router.post(LOGOUT_PATH, dependencies=[PUBLIC])
def log_out(request: Request, state: StateOf, form: FormOf) -> Response:
    """End the session of this browser."""
    member = page_session_of_form(request, state, form)
    if member is not None and member.caller.session_id is not None:
        with state.resources.unit_of_work() as uow:
            sessions.end(uow, member.caller.session_id)
    reply = redirect_to_path(state, LOGIN_PATH)
    state.cookies.drop_session(reply)
    return reply


async def _log_in(request: Request, state: State, form: FormFields) -> LoginCookies | None:
    attempt = await state.in_unit_of_work(
        partial(
            logins.begin,
            keyring=state.resources.keyring,
            email=form.get("email", ""),
            client=client_address(request),
            known=request.cookies.get(state.cookies.known),
        )
    )
    # Outside of a transaction, so that no connection is held while the hash waits for its turn.
    verdict = await state.hashing_pool.run(
        partial(passwords.verify, attempt.password_hash, form.get("password", ""))
    )
    if not verdict.matches:
        return None
    return await run_in_threadpool(_succeed, request, state, attempt, verdict)


def _succeed(
    request: Request, state: State, attempt: Attempt, verdict: passwords.PasswordCheck
) -> LoginCookies | None:
    before = page_session(request, state)
    with state.resources.unit_of_work() as uow:
        user_id = logins.succeed(uow, attempt, verdict)
        if user_id is None:
            return None
        return begin_session(
            request, state, uow, user_id=user_id, email=attempt.email, before=before
        )


def _paused(request: Request, state: State, form: FormFields, error: DomainError) -> Response:
    seconds = error.retry_after or 1
    wait = f"{seconds} seconds" if seconds < 120 else f"{round(seconds / 60)} minutes"  # noqa: PLR2004
    problem = (
        f"Too many logins failed. Wait {wait}, or ask for a new password, "
        "which lets you in at once."
    )
    reply = _form(request, state, form, problem, HTTPStatus.TOO_MANY_REQUESTS)
    reply.headers["Retry-After"] = str(seconds)
    return reply


def _form(
    request: Request, state: State, form: FormFields, problem: str | None = None, status: int = 200
) -> Response:
    return anonymous_page(
        request,
        state,
        "login.html",
        status=status,
        problem=problem,
        notice=None,
        next=local_path(form.get("next")),
        email=form.get("email", ""),
    )
