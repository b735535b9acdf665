"""How a browser comes to be logged in, by a password or by a mailed link."""

from dataclasses import dataclass

from fastapi import Request
from fastapi.responses import Response

from api.access.browsers import browser_name
from api.access.page_sessions import PageSession, redirect_to_path
from api.state import State
from services.access import sessions
from services.people import logins
from storage.unit_of_work import UnitOfWork


@dataclass(frozen=True)
class LoginCookies:
    """What a browser keeps once its user is logged in."""

    session: str
    known: str


def begin_session(
    request: Request,
    state: State,
    uow: UnitOfWork,
    *,
    user_id: int,
    email: str,
    before: PageSession | None,
) -> LoginCookies:
    """A session of its own secret; the one that this browser had, of whichever user, is over."""
    if before is not None and before.caller.session_id is not None:
        sessions.end(uow, before.caller.session_id)
    browser = browser_name(request.headers.get("user-agent"))
    value = sessions.begin(uow, state.resources.keyring, user_id, browser=browser)
    return LoginCookies(value, logins.known_browser_token(state.resources.keyring, email))


def welcome(state: State, entered: LoginCookies, path: str) -> Response:
    reply = redirect_to_path(state, path)
    state.cookies.keep_session(reply, entered.session)
    state.cookies.keep_known(reply, entered.known)
    return reply
