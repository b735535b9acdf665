"""A reader's visit to their preferences, as their browser proves it."""

from typing import Any

from fastapi import Request
from fastapi.responses import Response

from api.access.browsers import CSRF_FIELD
from api.access.page_sessions import FormFields
from api.pages.audience import reader_language
from api.pages.frame import page, redirect
from api.state import State
from core.refusals.access import AUTH_CSRF
from services.access import sessions
from services.mailing.preferences import preference_visits
from services.mailing.preferences.preference_visits import Visit
from services.mailing.subscriptions.mail_urls import PREFERENCES_PATH
from storage.unit_of_work import UnitOfWork


def visit_secret(request: Request, state: State) -> str | None:
    return request.cookies.get(state.cookies.visit)


def visit_of(uow: UnitOfWork, request: Request, state: State) -> Visit:
    """Raises ``visit.over``, also for a browser that never began one."""
    return preference_visits.read(uow, state.resources.keyring, visit_secret(request, state))


def require_visit_form(request: Request, state: State, form: FormFields) -> str | None:
    """The secret of the visit. Raises ``auth.csrf`` for a form that none of its pages sent."""
    secret, token = visit_secret(request, state), form.get(CSRF_FIELD, "")
    if secret and not sessions.is_csrf_token(state.resources.keyring, secret, token):
        raise AUTH_CSRF(header=CSRF_FIELD)
    return secret


def visit_page(request: Request, state: State, template: str, **values: Any) -> Response:
    token = sessions.csrf_token(state.resources.keyring, visit_secret(request, state) or "")
    return page(
        template,
        language=reader_language(request),
        base=state.resources.settings.public_base,
        csrf_token=token,
        **values,
    )


def redirect_to_preferences(state: State) -> Response:
    return redirect(state.resources.settings.public_base + PREFERENCES_PATH)


def goodbye(request: Request, state: State, *, is_erased: bool) -> Response:
    """The last page of a visit, whose secret the browser forgets."""
    answer = page("visit_ended.html", language=reader_language(request), is_erased=is_erased)
    state.cookies.drop_visit(answer)
    return answer
