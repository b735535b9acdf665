"""Pages on which anyone can sign up for a list without a login."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from api.auth.requirements import PUBLIC
from api.bodies.form_or_json import nest_inputs, read_body_fields
from api.html.problems import get_reader_language
from api.record_ids import find_list
from api.route_classes import ThreadedRoute
from api.sign_up.answer import answer_form
from api.sign_up.form import ListForm, render_form
from api.sign_up.subscribed import read_answers_cookie
from api.state import StateOf, Transaction
from core.errors import requests
from services.subscriptions import page_urls
from services.subscriptions.sign_up_origins import UTM_NAMES, Origin, clean_origin

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
    """Show the sign-up form. Hidden inputs contain the origin of the visit.

    ``correct``: whether the form contains the answers that this browser last sent.
    """
    mailing_list = find_list(uow, slug)
    form = ListForm.read(uow, mailing_list, state.resources.settings)
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
    mailing_list = await state.in_unit_of_work(find_list, slug)
    # Build the page's URL from the slug, because browsers send no ``Referer`` header for
    # Pressroom's pages.
    page_url = page_urls.sign_up_url(state.resources.settings, mailing_list.slug)
    return await answer_form(request, state, mailing_list, inputs, page_url=page_url)


def _read_origin(request: Request) -> Origin:
    """Return the ``utm_*`` parameters of the page's URL, and the host of the referring page."""
    query = request.query_params
    return clean_origin(
        {
            **{name: query.get(name) for name in UTM_NAMES},
            "referrer": request.headers.get("referer"),
        }
    )
