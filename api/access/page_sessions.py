"""Sessions of people who use our pages: their login, and the pages that are made for them.

Pages identify a person by the session cookie alone: keys and tokens are for programs.
"""

from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Depends, Request
from fastapi.responses import Response

from api.access import browsers
from api.access.browsers import CSRF_FIELD, require_csrf
from api.bodies.forms import FormOrJsonBodyOf
from api.pages.frame import page, redirect
from api.state import State
from core.errors import DomainError
from core.refusals.requests import BODY_CHARACTER_INVALID, BODY_NO_FORM_TYPE
from services.access import sessions
from services.access.caller import Caller
from services.people import logins
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


def redirect_to_login(request: Request, state: State) -> Response:
    """Redirect to the login page, which leads back to this page."""
    wanted = request.scope["path"]
    if request.method in browsers.SAFE_METHODS and request.url.query:
        wanted += f"?{request.url.query}"
    return redirect_to_path(state, f"{LOGIN_PATH}?{urlencode({'next': wanted})}")


@dataclass(frozen=True)
class LoginCookies:
    """The values of the cookies that a browser keeps once its user is logged in."""

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
    """Begin a session with a new secret, and end the browser's earlier one, whichever user's."""
    if before is not None and before.caller.session_id is not None:
        sessions.end(uow, before.caller.session_id)
    browser = browsers.browser_name(request.headers.get("user-agent"))
    value = sessions.begin(uow, state.resources.keyring, user_id, browser=browser)
    return LoginCookies(value, logins.known_browser_token(state.resources.keyring, email))


def redirect_logged_in(state: State, cookies: LoginCookies, path: str) -> Response:
    reply = redirect_to_path(state, path)
    state.cookies.keep_session(reply, cookies.session)
    state.cookies.keep_known(reply, cookies.known)
    return reply
