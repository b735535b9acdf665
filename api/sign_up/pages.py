"""Pages on which anyone can sign up for a list without a login."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from api.auth.page_sessions import find_page_session
from api.auth.requirements import PUBLIC
from api.bodies.form_or_json import nest_inputs, read_body_fields
from api.client_details import describe_visitor
from api.html.problems import get_reader_language
from api.middleware.request_rewriting import is_head
from api.record_ids import find_list
from api.route_classes import ThreadedRoute
from api.sign_up.form import ListForm, render_form
from api.sign_up.sealed_answers import read_answers_cookie
from api.sign_up.submission import subscribe_by_form
from api.state import StateOf, Transaction
from core import clock
from core.errors import requests
from core.machine_agents import is_machine_agent
from services.subscriptions import page_urls
from services.subscriptions.sign_up_origins import UTM_NAMES, Origin, clean_origin

# The headers with which browsers mark prefetch requests. Current browsers send ``sec-purpose``, and
# older browsers send ``purpose`` or ``x-moz``.
_PREFETCH_HEADERS = ("sec-purpose", "purpose", "x-moz")

router = APIRouter(dependencies=[PUBLIC], include_in_schema=False, route_class=ThreadedRoute)


@router.get(page_urls.SIGN_UP_PATH)
def show_form(
    request: Request,
    state: StateOf,
    uow: Transaction,
    slug: str,
    redirect_url: Annotated[str | None, Query()] = None,
    correct: Annotated[str | None, Query()] = None,
) -> Response:
    """Show the form, with the answers that this browser last sent if ``correct`` is set."""
    # Find the session before using ``uow``, so that the request doesn't hold one database
    # connection while waiting for another one.
    session = find_page_session(request, state)
    mailing_list = find_list(uow, slug)
    is_owner = session is not None and session.account_id == mailing_list.user_id
    if not is_owner and _may_be_person(request):
        state.sign_up_views.count_view(mailing_list.id, clock.now().date())
    form = ListForm.read(uow, mailing_list)
    values: dict[str, Any] = {**_read_origin(request)}
    if redirect_url:
        values["redirect_url"] = redirect_url
    if correct and (answers := read_answers_cookie(request, state, mailing_list.id)):
        values |= answers.values
    return render_form(get_reader_language(request), state, form, values=values)


@router.post(page_urls.SIGN_UP_PATH)
async def submit_form(request: Request, state: StateOf, slug: str) -> Response:
    pairs, is_form = await read_body_fields(request)
    if pairs and not is_form:
        raise requests.BODY_NO_FORM_TYPE()
    inputs = nest_inputs(pairs, "fields")
    form = await state.in_unit_of_work(lambda uow: ListForm.read(uow, find_list(uow, slug)))
    # Build the page's URL from the slug, because browsers send no ``Referer`` header for
    # Pressroom's pages.
    page_url = page_urls.sign_up_url(state.resources.settings, form.mailing_list.slug)
    visitor = describe_visitor(request, get_reader_language(request))
    return await subscribe_by_form(state, form, inputs, visitor, page_url=page_url)


def _may_be_person(request: Request) -> bool:
    """Return whether a person may be viewing the page, in contrast to a program or a prefetch."""
    headers = request.headers
    agent = headers.get("user-agent")
    is_prefetch = any(name in headers for name in _PREFETCH_HEADERS)
    return not (is_head(request.scope) or is_prefetch or not agent or is_machine_agent(agent))


def _read_origin(request: Request) -> Origin:
    query = request.query_params
    return clean_origin(
        {
            **{name: query.get(name) for name in UTM_NAMES},
            "referrer": request.headers.get("referer"),
        }
    )
