"""Who looks at a page, and the pages that are made for them.

Only the session's cookie says who it is: keys and tokens are for programs.
"""

from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Depends, Request
from fastapi.responses import Response

from api.access import browsers
from api.access.browsers import CSRF_FIELD, form_cookie_value, require_csrf, session_cookie
from api.bodies.forms import FormOrJsonBodyOf
from api.pages.frame import page, redirect
from api.state import State
from core.errors import DomainError
from core.refusals.requests import BODY_CHARACTER_INVALID, BODY_NO_FORM_TYPE
from services.access import sessions
from services.access.caller import Caller
from services.people.page_urls import LOGIN_PATH

FormFields = dict[str, str]


async def read_page_form(submission: FormOrJsonBodyOf) -> FormFields:
    """The fields of a page's form. Raises for what pages don't send."""
    if submission.fields and not submission.is_form:
        raise BODY_NO_FORM_TYPE()
    fields = {name: str(value) for name, value in submission.fields.items()}
    # No keyboard writes it, and the database keeps no text with it.
    if any("\0" in value for value in fields.values()):
        raise BODY_CHARACTER_INVALID()
    return fields


FormOf = Annotated[FormFields, Depends(read_page_form)]


@dataclass(frozen=True)
class PageSession:
    """Somebody who is logged in."""

    caller: Caller
    cookie: str

    @property
    def user_id(self) -> int:
        return self.caller.user_id


def page_session(request: Request, state: State) -> PageSession | None:
    """Who is logged in in this browser."""
    cookie = session_cookie(request, state)
    if cookie is None:
        return None
    database = state.resources.database
    try:
        caller = sessions.authenticate(database, state.resources.keyring, cookie)
    except DomainError:
        return None
    return PageSession(caller, cookie)


def page_session_of_form(request: Request, state: State, form: FormFields) -> PageSession | None:
    """Who is logged in and sent this form of ours; raises ``auth.csrf``."""
    member = page_session(request, state)
    if member is not None:
        require_csrf(request, state, member.cookie, form.get(CSRF_FIELD))
    return member


def require_form_csrf(request: Request, state: State, form: FormFields) -> None:
    """What is sent by somebody who need not be logged in; raises ``auth.csrf``."""
    cookie = request.cookies.get(state.cookies.form)
    require_csrf(request, state, cookie, form.get(CSRF_FIELD))


def anonymous_page(
    request: Request, state: State, template: str, *, status: int = 200, **values: Any
) -> Response:
    value = form_cookie_value(request, state)
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
    """Lead to a path of ours, which nothing that was sent turns into another's address."""
    return redirect(state.resources.settings.public_base + path)


def redirect_to_login(request: Request, state: State) -> Response:
    """First the login, and then back here."""
    wanted = request.scope["path"]
    if request.method in browsers.SAFE_METHODS and request.url.query:
        wanted += f"?{request.url.query}"
    return redirect_to_path(state, f"{LOGIN_PATH}?{urlencode({'next': wanted})}")
