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
from api.limits.bulkheads import AUTHENTICATION
from api.pages.frame import HEADERS, page, redirect
from api.state import State, state_of
from core.errors import DomainError
from core.refusals.requests import BODY_CHARACTER_INVALID, BODY_NO_FORM_TYPE
from services.access import sessions
from services.access.caller import Caller
from services.access.recent_logins import require_recent_login
from services.events import event_origins
from services.people.page_urls import FACTORS_PATH, LOGIN_PATH
from storage.unit_of_work import UnitOfWork

FormFields = dict[str, str]
# The page whose script (htmx) sends the request.
_PAGE_OF_SCRIPT = "hx-current-url"


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
    # Such a person gets the pages that set a second factor up, and no others.
    lacks_factor: bool
    # Whether they run this deployment.
    is_operator: bool

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
        found = sessions.read(
            resources.database,
            resources.keyring,
            cookie,
            everyone_needs_factor=resources.settings.require_second_factor,
        )
    except DomainError:
        return None
    event_origins.current().credential = found.caller.credential
    return PageSession(found.caller, cookie, found.lacks_factor, found.is_operator)


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


class FactorNeeded(Exception):
    """The person must set up a second factor first: the answer is a redirect to that page."""


def require_member(member: PageSession | None) -> PageSession:
    """Raises ``LoginNeeded`` and ``FactorNeeded``."""
    found = _logged_in(member)
    if found.lacks_factor:
        raise FactorNeeded
    return found


@AUTHENTICATION.threaded
def _member(request: Request) -> PageSession:
    return require_member(page_session(request, state_of(request)))


async def _member_of_form(
    # Before the form: only a person who is logged in has it read.
    member: Annotated[PageSession, Depends(_member)],
    form: FormOf,
    request: Request,
) -> PageSession:
    require_csrf(request, state_of(request), member.cookie, form.get(CSRF_FIELD))
    return member


@AUTHENTICATION.threaded
def _starter(request: Request) -> PageSession:
    return _logged_in(page_session(request, state_of(request)))


async def _starter_of_form(
    starter: Annotated[PageSession, Depends(_starter)], form: FormOf, request: Request
) -> PageSession:
    require_csrf(request, state_of(request), starter.cookie, form.get(CSRF_FIELD))
    return starter


def _logged_in(member: PageSession | None) -> PageSession:
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
# People who may have no second factor yet, though they need one.
Starter = Annotated[PageSession, Depends(_starter)]
FormStarter = Annotated[PageSession, Depends(_starter_of_form)]


@AUTHENTICATION.threaded
def _recent_member(request: Request, member: Member) -> PageSession:
    return _with_recent_login(request, member)


@AUTHENTICATION.threaded
def _recent_member_of_form(request: Request, member: FormMember) -> PageSession:
    return _with_recent_login(request, member)


@AUTHENTICATION.threaded
def _recent_starter(request: Request, member: Starter) -> PageSession:
    return _with_recent_login(request, member)


@AUTHENTICATION.threaded
def _recent_starter_of_form(request: Request, member: FormStarter) -> PageSession:
    return _with_recent_login(request, member)


def _with_recent_login(request: Request, member: PageSession) -> PageSession:
    with state_of(request).resources.unit_of_work() as uow:
        require_recent(uow, member)
    return member


RecentMember = Annotated[PageSession, Depends(_recent_member)]
RecentFormMember = Annotated[PageSession, Depends(_recent_member_of_form)]
RecentStarter = Annotated[PageSession, Depends(_recent_starter)]
RecentFormStarter = Annotated[PageSession, Depends(_recent_starter_of_form)]


def require_form_csrf(request: Request, state: State, form: FormFields) -> None:
    """Check the CSRF token of a form that needs no login; raises ``auth.csrf``."""
    cookie = request.cookies.get(state.cookies.form)
    require_csrf(request, state, cookie, form.get(CSRF_FIELD))


def anonymous_page(
    request: Request,
    state: State,
    template: str,
    *,
    status: int = 200,
    form_cookie: str | None = None,
    **values: Any,
) -> Response:
    """A page for a person who may not be logged in.

    ``form_cookie``: its value, where the page's values depend on it.
    """
    value = form_cookie or browsers.form_cookie_value(request, state)
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
    state = state_of(request)
    base = state.resources.settings.public_base
    wanted = request.scope["path"]
    if request.url.query:
        wanted += f"?{request.url.query}"
    # A script asks for a part of a page: the browser leaves that page, and comes back to it.
    whole_page = request.headers.get(_PAGE_OF_SCRIPT, "")
    if whole_page.startswith(f"{base}/"):
        wanted = whole_page.removeprefix(base)
    query = ({"again": "yes"} if needed.again else {}) | {"next": wanted}
    path = f"{LOGIN_PATH}?{urlencode(query)}"
    if whole_page:
        return Response(headers={**HEADERS, "HX-Redirect": base + path})
    return redirect_to_path(state, path)


async def redirect_to_factors(request: Request, _: FactorNeeded) -> Response:
    """Redirect to the page on which the person sets up a second factor."""
    return redirect_to_path(state_of(request), FACTORS_PATH)
