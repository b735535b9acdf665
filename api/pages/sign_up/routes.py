"""The pages by which strangers subscribe. They act for nobody, and name nobody."""

from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response

from api.auth.page_sessions import FormOf, form_cookie_value, mail_source, require_form_csrf
from api.auth.requirements import PUBLIC
from api.bodies.forms import body_fields, nested_inputs
from api.bodies.json_bodies import ThreadedRoute
from api.browsers import FORM
from api.html.frame import list_page, see_other
from api.html.problems import reader_language
from api.pages.sign_up.submission import SignUpPage, answer_form, find_list, show_form
from api.parameters import PathId, StateOf, Transaction
from core.errors import requests
from services.access import sessions
from services.subscriptions import branding, lists, page_urls

router = APIRouter(dependencies=[PUBLIC], include_in_schema=False, route_class=ThreadedRoute)

RedirectUrl = Annotated[str | None, Query()]


@router.get(page_urls.SIGN_UP_PATH)
def show_sign_up(
    request: Request, state: StateOf, uow: Transaction, slug: str, redirect_url: RedirectUrl = None
) -> Response:
    shown = SignUpPage.read(uow, find_list(uow, slug), state.resources.settings)
    written = {"redirect_url": redirect_url} if redirect_url else {}
    return show_form(reader_language(request), state, shown, written=written)


@router.post(page_urls.SIGN_UP_PATH)
async def sign_up(request: Request, state: StateOf, slug: str) -> Response:
    pairs, is_form = await body_fields(request)
    if pairs and not is_form:
        raise requests.BODY_NO_FORM_TYPE()
    inputs = nested_inputs(pairs, "fields")
    mailing_list = await state.in_unit_of_work(find_list, slug)
    # Our own page says nothing of itself in a Referer.
    own = page_urls.sign_up_url(state.resources.settings, mailing_list.slug)
    return await answer_form(request, state, mailing_list, inputs, page_url=own)


@router.get(page_urls.REPORT_PAGE_PATH)
def show_report(
    request: Request,
    state: StateOf,
    uow: Transaction,
    slug: str,
    sent: Annotated[str | None, Query()] = None,
) -> Response:
    mailing_list = find_list(uow, slug)
    form_cookie = form_cookie_value(request, state)
    reply = list_page(
        "report_page.html",
        branding.read_look(uow, mailing_list),
        language=reader_language(request),
        list_title=mailing_list.title,
        is_reported=sent is not None,
        csrf_token=sessions.csrf_token(state.resources.keyring, form_cookie),
    )
    state.cookies.keep(reply, FORM, form_cookie)
    return reply


@router.post(page_urls.REPORT_PAGE_PATH)
def report_page(
    request: Request, state: StateOf, uow: Transaction, slug: str, form: FormOf
) -> Response:
    # Without this check, another website could make its visitors report a list unknowingly.
    require_form_csrf(request, state, form)
    mailing_list = find_list(uow, slug)
    lists.report_page(uow, mailing_list, mail_source(request, state) or b"")
    return see_other(urlencode({"sent": "yes"}))


@router.get(page_urls.SUBSCRIBED_PATH)
def show_subscribed(
    request: Request, uow: Transaction, list_id: Annotated[PathId, Query(alias="list")]
) -> Response:
    """Show the result of a sign-up by a form, which is the same for each address."""
    mailing_list = lists.get(uow, list_id)
    return list_page(
        "subscribed.html",
        branding.read_look(uow, mailing_list),
        language=reader_language(request),
        list_title=mailing_list.title,
        must_confirm=mailing_list.confirm_required,
        words=mailing_list.thanks_text,
    )
