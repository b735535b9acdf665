"""Finds the preferences session of a reader, and renders pages for the reader."""

from typing import Any

from fastapi import Request, Response

from api.auth.csrf import CSRF_FIELD
from api.bodies.page_forms import FormFields
from api.cookies import VISIT_COOKIE
from api.html.frame import redirect_to, render_list_page, render_page
from api.html.problems import get_reader_language
from api.state import State
from core.errors import access
from services.access import sessions
from services.subscriptions import page_urls
from services.subscriptions.branding import Look
from services.subscriptions.preferences import visits
from services.subscriptions.preferences.visits import Visit
from storage.unit_of_work import UnitOfWork


def read_visit_secret(request: Request, state: State) -> str | None:
    return state.cookies.read(request, VISIT_COOKIE)


def find_visit(uow: UnitOfWork, request: Request, state: State) -> Visit:
    return visits.read_visit(uow, read_visit_secret(request, state))


def require_visit_form(request: Request, state: State, form: FormFields) -> str | None:
    """Return the secret of the preferences session, or ``None`` if the request has no cookie."""
    secret = read_visit_secret(request, state)
    token = form.get(CSRF_FIELD, "")
    if secret and not sessions.is_valid_csrf_token(state.resources.keyring, secret, token):
        raise access.AUTH_CSRF(header=CSRF_FIELD)
    return secret


def render_visit_page(
    request: Request, state: State, look: Look, template: str, **values: Any
) -> Response:
    token = sessions.create_csrf_token(
        state.resources.keyring, read_visit_secret(request, state) or ""
    )
    return render_list_page(
        template,
        look,
        language=get_reader_language(request),
        base=state.resources.settings.pages_base,
        csrf_token=token,
        is_reader_page=True,
        **values,
    )


def redirect_to_preferences(state: State) -> Response:
    return redirect_to(state.resources.settings.pages_base + page_urls.PREFERENCES_PATH)


def render_last_page(request: Request, state: State, *, is_erased: bool) -> Response:
    response = render_page(
        "visit_ended.html",
        language=get_reader_language(request),
        is_reader_page=True,
        is_erased=is_erased,
    )
    state.cookies.delete(response, VISIT_COOKIE)
    return response
