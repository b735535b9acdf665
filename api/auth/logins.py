"""Checks a person's password and second factor at login, and starts the session."""

from collections.abc import Callable
from dataclasses import dataclass

from fastapi import Request, Response

from api.auth.csrf import obtain_form_cookie
from api.auth.form_pages import render_anonymous_page
from api.auth.page_sessions import find_page_session
from api.auth.redirects import redirect_to_path
from api.client_details import browser_name, client_address
from api.cookies import FIRST_STEP_COOKIE, KNOWN_BROWSER_COOKIE, SESSION_COOKIE
from api.errors import STATUS_OF
from api.html.field_errors import place_message
from api.limits.bulkheads import AUTHENTICATION, PASSWORDS
from api.metrics import LOGINS
from api.state import State
from core.errors import DomainError, Kind, access, people
from models import User
from services.access import sessions
from services.accounts import logins, passwords
from services.accounts.factors import passkeys, second_steps
from services.accounts.logins import Browser
from storage.unit_of_work import UnitOfWork


@dataclass(frozen=True)
class _FirstStep:
    """A login that still waits for the second factor."""

    cookie: str
    passkey_options: str | None


async def verify_password(
    request: Request, state: State, email: str, password: str
) -> tuple[logins.Attempt, passwords.PasswordCheck]:
    """Count the login attempt and verify the password.

    Raises ``password.wrong`` for a wrong password and for an unknown e-mail address, to hide which
    accounts exist.
    """
    try:
        attempt = await state.in_unit_of_work(
            logins.begin_attempt,
            email=email,
            client=client_address(request),
            browser_token=state.cookies.read(request, KNOWN_BROWSER_COOKIE),
        )
    except DomainError as error:
        if error.code == access.LOGIN_PAUSED.code:
            LOGINS.labels("paused").inc()
        raise
    # Don't keep a transaction open while verifying the password, because the verification may have
    # to wait for a free thread.
    check = await PASSWORDS.run(passwords.verify_password, attempt.password_hash, password)
    if not check.matches:
        LOGINS.labels("failed").inc()
        await state.in_unit_of_work(logins.record_failure, attempt)
        raise people.PASSWORD_WRONG()
    return attempt, check


def identify_browser(request: Request, state: State) -> Browser:
    browser_token = state.cookies.read(request, KNOWN_BROWSER_COOKIE)
    return Browser(browser_name(request.headers.get("user-agent")), browser_token)


async def begin_session(
    request: Request,
    state: State,
    path: str,
    identify: Callable[[UnitOfWork], User],
    *,
    is_factor_verified: bool = False,
) -> Response:
    """Log in the person that ``identify`` returns, and redirect to ``path``.

    The login ends any earlier session of the browser, even a session of another user. If the person
    has set up a second factor, the response is a page that asks for it, with status 403.
    """
    earlier_session = await AUTHENTICATION.run(find_page_session, request, state)
    form_cookie = obtain_form_cookie(request, state)
    keyring = state.resources.keyring
    browser = identify_browser(request, state)

    def begin(uow: UnitOfWork) -> tuple[str, str] | _FirstStep:
        person = identify(uow)
        if not is_factor_verified and sessions.has_second_factor(uow, person.id):
            return _FirstStep(
                second_steps.create_first_step(keyring, person, form_cookie),
                passkeys.build_request_options_for(uow, person.id, form_cookie),
            )
        if earlier_session is not None and earlier_session.caller.session_id is not None:
            sessions.revoke_session(uow, earlier_session.caller.session_id)
        session_secret = sessions.begin_session(uow, person.id, browser=browser.name)
        return session_secret, logins.create_browser_token(keyring, person)

    result = await state.in_unit_of_work(begin)
    if isinstance(result, _FirstStep):
        options = result.passkey_options
        response = render_second_step(request, state, options, form_cookie=form_cookie, path=path)
        state.cookies.set(response, FIRST_STEP_COOKIE, result.cookie)
        return response
    LOGINS.labels("succeeded").inc()
    session_secret, browser_token = result
    response = redirect_to_path(state, path)
    state.cookies.set(response, SESSION_COOKIE, session_secret)
    state.cookies.set(response, KNOWN_BROWSER_COOKIE, browser_token)
    state.cookies.delete(response, FIRST_STEP_COOKIE)
    return response


def render_second_step(
    request: Request,
    state: State,
    passkey_options: str | None,
    *,
    form_cookie: str,
    path: str,
    error: DomainError | None = None,
) -> Response:
    is_paused = error is not None and error.kind is Kind.RATE_LIMITED
    problem, errors = (None, {}) if error is None else place_message(error)
    response = render_anonymous_page(
        request,
        state,
        "second_step.html",
        # A wrong second factor gets the same status as a missing one.
        status=STATUS_OF[Kind.RATE_LIMITED if is_paused else access.AUTH_SECOND_FACTOR.kind],
        form_cookie=form_cookie,
        has_passkey_script=passkey_options is not None,
        passkey_options=passkey_options,
        next=path,
        problem=problem,
        errors=errors,
    )
    if error is not None and error.retry_after is not None:
        response.headers["Retry-After"] = str(error.retry_after)
    return response
