"""Finds the sessions of people who are logged in to Pressroom's pages.

Pressroom's pages accept only the session cookie, because API keys and tokens are for programs.
"""

from dataclasses import dataclass
from urllib.parse import urlencode

from fastapi import Request, Response

from api.auth.chosen_account import name_account
from api.auth.interrupted_forms import keep_form
from api.auth.redirects import redirect_to_path
from api.bodies.page_forms import read_page_form
from api.cookies import SESSION_COOKIE
from api.html.frame import HEADERS
from api.state import State, state_of
from core.errors import DomainError, Kind
from core.ids import AccountId, PersonId
from services import event_origins
from services.access import sessions
from services.access.caller import Caller
from services.access.sessions import require_recent_login
from services.accounts.page_paths import FACTORS_PATH, LOGIN_PATH
from storage.unit_of_work import UnitOfWork

# The request header with which the library htmx sends the URL of the current page.
_PAGE_URL_HEADER = "hx-current-url"


@dataclass(frozen=True)
class PageSession:
    caller: Caller
    cookie: str
    lacks_factor: bool
    is_operator: bool

    @property
    def account_id(self) -> AccountId:
        return self.caller.account_id

    @property
    def person_id(self) -> PersonId:
        return self.caller.person_id


class LoginNeeded(Exception):
    """Redirects the browser to the login page.

    ``member``: the logged-in person who must log in again, or ``None`` if nobody is logged in.
    """

    def __init__(self, member: PageSession | None = None) -> None:
        self.member = member


class FactorNeeded(Exception):
    """Redirects the browser to the page for setting up a second factor."""


def find_page_session(
    request: Request, state: State, account_id: AccountId | None = None
) -> PageSession | None:
    """Return the session of the request's cookie, or ``None`` if it has ended.

    Raises an error if the session's person can't act in the account. By default, the account is the
    one with the person's id.
    """
    cookie = state.cookies.read(request, SESSION_COOKIE)
    if not cookie:
        return None
    resources = state.resources
    try:
        session = sessions.read_session(
            resources.database,
            resources.keyring,
            cookie,
            everyone_needs_factor=resources.settings.require_second_factor,
            account_id=account_id,
        )
    except DomainError as error:
        # Browsers keep sending the cookie of a session that has ended.
        if error.kind is not Kind.UNAUTHENTICATED:
            raise
        return None
    event_origins.current_origin().credential = session.caller.credential
    name_account(request, session.caller)
    return PageSession(session.caller, cookie, session.lacks_factor, session.is_operator)


def require_login(member: PageSession | None) -> PageSession:
    if member is None:
        raise LoginNeeded
    return member


def require_member(member: PageSession | None) -> PageSession:
    session = require_login(member)
    if session.lacks_factor:
        raise FactorNeeded
    return session


def require_recent_session(uow: UnitOfWork, member: PageSession) -> None:
    try:
        require_recent_login(uow, member.caller)
    except DomainError:
        raise LoginNeeded(member) from None


async def redirect_to_login(request: Request, needed: LoginNeeded) -> Response:
    state = state_of(request)
    base = state.resources.settings.public_base
    next_path = request.scope["path"]
    if request.url.query:
        next_path += f"?{request.url.query}"
    # If a script requested a part of a page, redirect to the whole page after the login.
    page_url = request.headers.get(_PAGE_URL_HEADER, "")
    if page_url.startswith(f"{base}/"):
        next_path = page_url.removeprefix(base)
    query = ({"again": "yes"} if needed.member else {}) | {"next": next_path}
    path = f"{LOGIN_PATH}?{urlencode(query)}"
    if page_url:
        return Response(headers={**HEADERS, "HX-Redirect": base + path})
    response = redirect_to_path(state, path)
    if needed.member is not None and request.method == "POST":
        form = await read_page_form(request)
        keep_form(request, response, state, needed.member.caller, form)
    return response


async def redirect_to_factors(request: Request, _: FactorNeeded) -> Response:
    return redirect_to_path(state_of(request), FACTORS_PATH)
