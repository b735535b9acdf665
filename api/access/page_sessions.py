"""Sessions of people who use our pages: their login, and the pages that are made for them.

Pages identify a person by the session cookie alone: keys and tokens are for programs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Depends, Request
from fastapi.responses import Response

from api.access import browsers
from api.access.browsers import CSRF_FIELD, browser_name, client_address, require_csrf
from api.bodies.forms import FormOrJsonBodyOf
from api.limits.bulkheads import AUTHENTICATION
from api.pages.frame import page, redirect
from api.state import State, state_of
from core.errors import DomainError
from core.refusals.people import PASSWORD_WRONG
from core.refusals.requests import BODY_CHARACTER_INVALID, BODY_NO_FORM_TYPE
from models import User
from services.access import sessions
from services.access.caller import Caller
from services.access.recent_logins import require_recent_login
from services.people import logins, passwords
from services.people.page_urls import LOGIN_PATH
from storage.unit_of_work import UnitOfWork

FormFields = dict[str, str]


async def read_page_form(submission: FormOrJsonBodyOf) -> FormFields:
    """The fields of a page's form. Raises for a body that no page sends."""
    if submission.fields and not submission.is_form:
        raise BODY_NO_FORM_TYPE()
    fields = {name: str(value) for name, value in submission.fields.items()}
    # No keyboard types a NUL character, and the database stores no text with one.
    if any("\0" in value for value in fields.values()):
        raise BODY_CHARACTER_INVALID()
    return fields


FormOf = Annotated[FormFields, Depends(read_page_form)]


@dataclass(frozen=True)
class PageSession:
    """The session of a person who is logged in, with the cookie that proves it."""

    caller: Caller
    cookie: str

    @property
    def user_id(self) -> int:
        return self.caller.user_id


def page_session(request: Request, state: State) -> PageSession | None:
    """The session of this browser; ``None`` when no person is logged in."""
    cookie = browsers.session_cookie(request, state)
    if cookie is None:
        return None
    resources = state.resources
    try:
        caller = sessions.authenticate(resources.database, resources.keyring, cookie)
    except DomainError:
        return None
    return PageSession(caller, cookie)


def page_session_of_form(request: Request, state: State, form: FormFields) -> PageSession | None:
    """The session of the browser that sent one of our forms; raises ``auth.csrf``."""
    member = page_session(request, state)
    if member is not None:
        require_csrf(request, state, member.cookie, form.get(CSRF_FIELD))
    return member


class LoginNeeded(Exception):
    """The page is for people who are logged in: the answer is a redirect to the login page.

    ``again``: they are, and not since so short a time as this page asks for.
    """

    def __init__(self, *, again: bool = False) -> None:
        self.again = again


@AUTHENTICATION.threaded
def _member(request: Request) -> PageSession:
    member = page_session(request, state_of(request))
    if member is None:
        raise LoginNeeded
    return member


@AUTHENTICATION.threaded
def _member_of_form(request: Request, form: FormOf) -> PageSession:
    member = page_session_of_form(request, state_of(request), form)
    if member is None:
        raise LoginNeeded
    return member


def require_recent(uow: UnitOfWork, member: PageSession) -> None:
    """Raises ``LoginNeeded`` when the person's login is too old for what the page is about."""
    try:
        require_recent_login(uow, member.caller)
    except DomainError:
        raise LoginNeeded(again=True) from None


Member = Annotated[PageSession, Depends(_member)]
FormMember = Annotated[PageSession, Depends(_member_of_form)]


@AUTHENTICATION.threaded
def _recent_member(request: Request, member: Member) -> PageSession:
    return _with_recent_login(request, member)


@AUTHENTICATION.threaded
def _recent_member_of_form(request: Request, member: FormMember) -> PageSession:
    return _with_recent_login(request, member)


def _with_recent_login(request: Request, member: PageSession) -> PageSession:
    with state_of(request).resources.unit_of_work() as uow:
        require_recent(uow, member)
    return member


RecentMember = Annotated[PageSession, Depends(_recent_member)]
RecentFormMember = Annotated[PageSession, Depends(_recent_member_of_form)]


def require_form_csrf(request: Request, state: State, form: FormFields) -> None:
    """Check the CSRF token of a form that needs no login; raises ``auth.csrf``."""
    cookie = request.cookies.get(state.cookies.form)
    require_csrf(request, state, cookie, form.get(CSRF_FIELD))


def anonymous_page(
    request: Request, state: State, template: str, *, status: int = 200, **values: Any
) -> Response:
    value = browsers.form_cookie_value(request, state)
    reply = _page(state, value, template, status, values)
    state.cookies.keep_form(reply, value)
    return reply


def session_page(
    member: PageSession, state: State, template: str, *, status: int = 200, **values: Any
) -> Response:
    return _page(state, member.cookie, template, status, values)


def _page(state: State, cookie: str, template: str, status: int, values: Any) -> Response:
    token = sessions.csrf_token(state.resources.keyring, cookie)
    base = state.resources.settings.public_base
    return page(template, status=status, base=base, csrf_token=token, **values)


def redirect_to_path(state: State, path: str) -> Response:
    """Redirect to a path below our own address; nothing that was sent can change the host."""
    return redirect(state.resources.settings.public_base + path)


async def redirect_to_login(request: Request, needed: LoginNeeded) -> Response:
    """Redirect to the login page, which leads back to this page."""
    wanted = request.scope["path"]
    if request.url.query:
        wanted += f"?{request.url.query}"
    query = ({"again": "yes"} if needed.again else {}) | {"next": wanted}
    return redirect_to_path(state_of(request), f"{LOGIN_PATH}?{urlencode(query)}")


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
    attempt = await state.in_unit_of_work(begin)
    # Outside of a transaction, so that no connection is held while the hash waits for its turn.
    check = await state.hashing_pool.run(partial(passwords.verify, attempt.password_hash, password))
    if not check.matches:
        raise PASSWORD_WRONG()
    return attempt, check


async def begin_session(
    request: Request, state: State, path: str, prove: Callable[[UnitOfWork], User]
) -> Response:
    """Log in the person whom ``prove`` returns, and redirect them to ``path``.

    Each login is complete here and nowhere else: at first, once more, and after a mailed link.
    The session has a new secret; the browser's earlier one ends, whichever user's it was.
    """
    before = await AUTHENTICATION.run(page_session, request, state)
    browser = browser_name(request.headers.get("user-agent"))
    keyring = state.resources.keyring

    def begin(uow: UnitOfWork) -> tuple[str, str]:
        person = prove(uow)
        if before is not None and before.caller.session_id is not None:
            sessions.end(uow, before.caller.session_id)
        session = sessions.begin(uow, keyring, person.id, browser=browser)
        return session, logins.known_browser_token(keyring, person)

    session, known = await state.in_unit_of_work(begin)
    reply = redirect_to_path(state, path)
    state.cookies.keep_session(reply, session)
    state.cookies.keep_known(reply, known)
    return reply
