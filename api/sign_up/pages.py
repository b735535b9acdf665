"""Pages on which anyone can sign up for a list without a login."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from api.auth.requirements import PUBLIC
from api.bodies.form_or_json import nest_inputs, read_body_fields
from api.html.frame import render_list_page
from api.html.problems import get_reader_language
from api.record_ids import PathId, find_list
from api.route_classes import ThreadedRoute
from api.sign_up.answer import answer_form
from api.sign_up.form import ListForm, render_form
from api.state import StateOf, Transaction
from core.errors import requests
from services.subscriptions import branding, lists, page_urls

router = APIRouter(dependencies=[PUBLIC], include_in_schema=False, route_class=ThreadedRoute)


@router.get(page_urls.SIGN_UP_PATH)
def show_form(
    request: Request,
    state: StateOf,
    uow: Transaction,
    slug: str,
    redirect_url: Annotated[str | None, Query()] = None,
) -> Response:
    form = ListForm.read(uow, find_list(uow, slug), state.resources.settings)
    values = {"redirect_url": redirect_url} if redirect_url else {}
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


@router.get(page_urls.SUBSCRIBED_PATH)
def show_subscribed(
    request: Request, uow: Transaction, list_id: Annotated[PathId, Query(alias="list")]
) -> Response:
    """Show the page that follows a sign-up.

    The page is the same for every address, so that nobody learns who subscribes to the list.
    """
    mailing_list = lists.get_list(uow, list_id)
    return render_list_page(
        "subscribed.html",
        branding.read_look(uow, mailing_list),
        language=get_reader_language(request),
        list_title=mailing_list.title,
        must_confirm=mailing_list.confirm_required,
        owner_text=mailing_list.thanks_text,
    )
