"""Logging in: the proof of a password, the second step, and the session that a login begins."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from fastapi import Request
from fastapi.responses import Response

from api.access import browsers
from api.access.browsers import browser_name, client_address
from api.access.page_sessions import anonymous_page, page_session, redirect_to_path
from api.errors import STATUS_OF
from api.limits.bulkheads import AUTHENTICATION
from api.metrics.requests import LOGINS
from api.state import State
from core.errors import DomainError, Kind
from core.refusals.access import AUTH_SECOND_FACTOR, LOGIN_PAUSED
from core.refusals.people import PASSWORD_WRONG
from models import User
from services.access import required_factors, sessions
from services.people import known_browsers, logins, passwords
from services.people.factors import passkeys, second_steps
from services.people.logins import Browser
from storage.unit_of_work import UnitOfWork

Proof = tuple[logins.Attempt, passwords.PasswordCheck]


async def prove_password(request: Request, state: State, email: str, password: str) -> Proof:
    """The counted attempt of a person whose password it is, and the check of the password.

    Raises ``password.wrong``, for an address without an account too, and ``login.paused``.
    """
    begin = partial(
        logins.begin,
        keyring=state.resources.keyring,
        email=email,
        client=client_address(request),
        known=request.cookies.get(state.cookies.known),
    )
    try:
        attempt = await state.in_unit_of_work(begin)
    except DomainError as error:
        if error.code == LOGIN_PAUSED.code:
            LOGINS.labels("paused").inc()
        raise
    # Outside of a transaction, so that no connection is held while the hash waits for its turn.
    check = await state.hashing_pool.run(partial(passwords.verify, attempt.password_hash, password))
    if not check.matches:
        LOGINS.labels("failed").inc()
        await state.in_unit_of_work(partial(logins.fail, attempt=attempt))
        raise PASSWORD_WRONG()
    return attempt, check


def browser_of(request: Request, state: State) -> Browser:
    known = request.cookies.get(state.cookies.known)
    return Browser(browser_name(request.headers.get("user-agent")), known)


def second_step_page(
    request: Request,
    state: State,
    passkey_options: str | None,
    *,
    form_cookie: str,
    path: str,
    error: DomainError | None = None,
) -> Response:
    """The page that asks for the second factor, and leads to ``path``.

    ``passkey_options``: for the browser to sign by one of the person's passkeys, if there are any.
    """
    is_paused = error is not None and error.kind is Kind.RATE_LIMITED
    reply = anonymous_page(
        request,
        state,
        "second_step.html",
        # What is missing is the factor, at first and after a wrong one.
        status=STATUS_OF[Kind.RATE_LIMITED if is_paused else AUTH_SECOND_FACTOR.kind],
        form_cookie=form_cookie,
        scripted=passkey_options is not None,
        passkey_options=passkey_options,
        next=path,
        problem=None if error is None else error.message,
    )
    if error is not None and error.retry_after is not None:
        reply.headers["Retry-After"] = str(error.retry_after)
    return reply


@dataclass(frozen=True)
class _FirstStep:
    """A login whose password was right, and which needs a second factor."""

    cookie: str
    passkey_options: str | None


async def begin_session(
    request: Request,
    state: State,
    path: str,
    prove: Callable[[UnitOfWork], User],
    *,
    factor_shown: bool = False,
) -> Response:
    """Log in the person whom ``prove`` returns, and redirect them to ``path``.

    Each login is complete here and nowhere else: at first, once more, and after a mailed link.
    Without ``factor_shown`` a person who has a second factor gets no session, but 403 and the page
    that asks for it. The session has a new secret; the browser's earlier one ends, whichever user's
    it was.
    """
    before = await AUTHENTICATION.run(page_session, request, state)
    form_cookie = browsers.form_cookie_value(request, state)
    keyring, browser = state.resources.keyring, browser_of(request, state)

    def begin(uow: UnitOfWork) -> tuple[str, str] | _FirstStep:
        person = prove(uow)
        if not factor_shown and required_factors.is_asked(uow, person.id):
            return _first_step(uow, state, person, form_cookie)
        if before is not None and before.caller.session_id is not None:
            sessions.end(uow, before.caller.session_id)
        session = sessions.begin(uow, keyring, person.id, browser=browser.name)
        return session, known_browsers.known_browser_token(keyring, person)

    begun = await state.in_unit_of_work(begin)
    if isinstance(begun, _FirstStep):
        options = begun.passkey_options
        reply = second_step_page(request, state, options, form_cookie=form_cookie, path=path)
        state.cookies.keep_first_step(reply, begun.cookie)
        return reply
    LOGINS.labels("succeeded").inc()
    return _into(state, path, *begun)


def _into(state: State, path: str, session: str, known: str) -> Response:
    reply = redirect_to_path(state, path)
    state.cookies.keep_session(reply, session)
    state.cookies.keep_known(reply, known)
    state.cookies.drop_first_step(reply)
    return reply


def _first_step(uow: UnitOfWork, state: State, person: User, form_cookie: str) -> _FirstStep:
    resources = state.resources
    return _FirstStep(
        second_steps.begin(resources.keyring, person, form_cookie),
        passkeys.options_of_person(uow, resources.settings, person.id, form_cookie),
    )
