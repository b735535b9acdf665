"""The pages by which strangers subscribe. They act for nobody, and name nobody."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from api.access.requirements import PUBLIC
from api.bodies.forms import body_fields, nested_inputs
from api.limits.bulkheads import RECORDS
from api.pages.audience import reader_language
from api.pages.frame import page
from api.pages.list_pages import list_page
from api.parameters import PathId, StateOf
from api.readers.answering import SignUpPage, answer_form, show_form
from api.readers.embedding import embedded_form
from core.errors import DomainError
from core.languages.reader_languages import ENGLISH
from core.refusals.mailing import LIST_NAME_INVALID, LIST_NOT_FOUND
from core.refusals.requests import BODY_NO_FORM_TYPE
from models import MailingList
from services.mailing import lists, looks
from services.mailing.subscriptions.mail_urls import (
    EMBED_PATH,
    SIGN_UP_PATH,
    SUBSCRIBED_PATH,
    sign_up_url,
)
from storage.unit_of_work import UnitOfWork

# No operations of the API, so not in its document.
router = APIRouter(dependencies=[PUBLIC], include_in_schema=False)

RedirectUrl = Annotated[str | None, Query()]


@router.get(SIGN_UP_PATH)
@RECORDS.threaded
def show_sign_up(
    request: Request, state: StateOf, slug: str, redirect_url: RedirectUrl = None
) -> Response:
    """The page on which a stranger subscribes."""
    with state.resources.unit_of_work() as uow:
        shown = SignUpPage.read(uow, _find(uow, slug), state.resources.settings)
    written = {"redirect_url": redirect_url} if redirect_url else {}
    return show_form(reader_language(request), state, shown, written=written)


@router.post(SIGN_UP_PATH)
async def sign_up(request: Request, state: StateOf, slug: str) -> Response:
    pairs, is_form = await body_fields(request)
    if pairs and not is_form:
        raise BODY_NO_FORM_TYPE()
    inputs = nested_inputs(pairs, "fields")
    mailing_list = await state.in_unit_of_work(partial(_find, slug=slug))
    # Our own page says nothing of itself in a Referer.
    own = sign_up_url(state.resources.settings, mailing_list.slug)
    return await answer_form(request, state, mailing_list, inputs, page_url=own)


@router.get(EMBED_PATH)
@RECORDS.threaded
def show_embedding(state: StateOf, slug: str) -> Response:
    """How to put the same form on another site: a page for owners."""
    with state.resources.unit_of_work() as uow:
        shown = SignUpPage.read(uow, _find(uow, slug), state.resources.settings)
    made = embedded_form(state, shown, language=ENGLISH)
    origins = shown.mailing_list.redirect_origins or ["https://www.example.com"]
    return page(
        "embed.html",
        list_title=shown.mailing_list.title,
        snippet=made.html,
        sign_up_url=made.page_url,
        example_url=f"{origins[0]}/thanks",
        widget=shown.mailing_list.challenge_enabled,
    )


@router.get(SUBSCRIBED_PATH)
@RECORDS.threaded
def show_subscribed(
    request: Request, state: StateOf, list_id: Annotated[PathId, Query(alias="list")]
) -> Response:
    """What happened to a sign-up by a form; the same for each address, as it names none."""
    with state.resources.unit_of_work() as uow:
        mailing_list = lists.get(uow, list_id)
        return list_page(
            "subscribed.html",
            looks.of(uow, state.resources.settings, mailing_list),
            language=reader_language(request),
            list_title=mailing_list.title,
            must_confirm=mailing_list.confirm_required,
            words=mailing_list.thanks_text,
        )


def _find(uow: UnitOfWork, slug: str) -> MailingList:
    """Raises ``list.not_found``, also for what is no slug: to a reader it is the same."""
    try:
        return lists.get_named(uow, slug)
    except DomainError as error:
        if error.code != LIST_NAME_INVALID.code:
            raise
        raise LIST_NOT_FOUND() from None
