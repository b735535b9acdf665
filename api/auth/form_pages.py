"""Renders pages with forms, and binds each form to the browser that loaded the page."""

from typing import Any

from fastapi import Request, Response

from api.auth.csrf import obtain_form_cookie
from api.cookies import FORM_COOKIE
from api.html.frame import render_list_page
from api.state import State
from services.access import sessions
from services.subscriptions.branding import Look

_DEFAULT_LOOK = Look()


def render_anonymous_page(
    request: Request,
    state: State,
    template: str,
    *,
    status: int = 200,
    form_cookie: str | None = None,
    look: Look = _DEFAULT_LOOK,
    **values: Any,
) -> Response:
    cookie = form_cookie or obtain_form_cookie(request, state)
    response = render_form_page(state, cookie, template, look=look, status=status, **values)
    state.cookies.set(response, FORM_COOKIE, cookie)
    return response


def render_form_page(
    state: State, cookie: str, template: str, *, look: Look = _DEFAULT_LOOK, **values: Any
) -> Response:
    token = sessions.create_csrf_token(state.resources.keyring, cookie)
    return render_list_page(
        template, look, base=state.resources.settings.public_base, csrf_token=token, **values
    )
