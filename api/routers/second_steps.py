"""The second step of a login: a page asks for a second factor once the password was right."""

from functools import partial
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from api.access import factor_forms, page_sessions
from api.access.begun_sessions import begin_session, browser_of, second_step_page
from api.access.browsers import local_path
from api.access.page_sessions import FormFields, FormOf
from api.access.requirements import LOGIN, PUBLIC
from api.limits.bulkheads import RECORDS
from api.parameters import StateOf
from api.request_ids import current_request_id
from api.state import State
from core.errors import DomainError
from core.refusals.access import AUTH_SECOND_FACTOR
from services.people.factors import passkeys, second_steps
from services.people.page_urls import ACCOUNT_PATH, LOGIN_PATH, SECOND_STEP_PATH

# No operations of the API, so not in its document.
router = APIRouter(include_in_schema=False)


@router.get(SECOND_STEP_PATH, dependencies=[PUBLIC])
@RECORDS.threaded
def show_second_step(
    request: Request,
    state: StateOf,
    next: Annotated[str | None, Query()] = None,  # noqa: A002
) -> Response:
    return _page(request, state, {"next": next or ""})


@router.post(SECOND_STEP_PATH, dependencies=[LOGIN])
async def take_second_step(request: Request, state: StateOf, form: FormOf) -> Response:
    """Begin the session of a person whose password was right, and who shows their second factor."""
    page_sessions.require_form_csrf(request, state, form)
    path = local_path(form.get("next")) or ACCOUNT_PATH
    shown = factor_forms.shown_factor(request, state, form)
    keyring, first_step = state.resources.keyring, _first_step(request, state)
    attempt = None
    try:
        email = await state.in_unit_of_work(
            lambda uow: second_steps.read(uow, keyring, first_step, shown.form_cookie).email
        )
        attempt = await factor_forms.count_code(request, state, email, shown)
        prove = partial(
            second_steps.finish,
            resources=state.resources,
            first_step=first_step,
            shown=shown,
            attempt=attempt,
            browser=browser_of(request, state),
            request_id=current_request_id(),
        )
        return await begin_session(request, state, path, prove, factor_shown=True)
    except DomainError as error:
        if not factor_forms.is_problem(error):
            raise
        await factor_forms.note_wrong_code(state, attempt, error)
        return await RECORDS.run(_page, request, state, form, error)


def _page(
    request: Request, state: State, form: FormFields, error: DomainError | None = None
) -> Response:
    """The page of a login whose password was right; without one a redirect to the login page."""
    path = local_path(form.get("next")) or ACCOUNT_PATH
    form_cookie = request.cookies.get(state.cookies.form, "")
    resources = state.resources
    try:
        with resources.unit_of_work() as uow:
            first_step = _first_step(request, state)
            person = second_steps.read(uow, resources.keyring, first_step, form_cookie)
            options = passkeys.options_of_person(uow, resources.settings, person.id, form_cookie)
    except DomainError as refusal:
        if refusal.code != AUTH_SECOND_FACTOR.code:
            raise
        query = urlencode({"next": path})
        return page_sessions.redirect_to_path(state, f"{LOGIN_PATH}?{query}")
    return second_step_page(
        request, state, options, form_cookie=form_cookie, path=path, error=error
    )


def _first_step(request: Request, state: State) -> str:
    return request.cookies.get(state.cookies.first_step, "")
