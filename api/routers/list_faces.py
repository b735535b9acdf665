"""What a list shows to readers, for its owner."""

from typing import Annotated

from fastapi import APIRouter, Query

from api.access.requirements import ListEditor, ListReader
from api.bodies.json_route import JsonRoute
from api.limits.bulkheads import RECORDS
from api.limits.shares import ACTS_BY_LIST
from api.list_answers import LIST_RULES
from api.openapi import refuses
from api.parameters import ListId, StateOf
from api.readers.answering import SignUpPage
from api.readers.embedding import embedded_form
from api.readers.previews import preview
from api.schemas.envelope import Envelope, envelope
from api.schemas.lists import EmbeddedForm, ListChanges, ListPreview, PreviewPart
from core.languages import reader_languages
from core.refusals import mailing as refusals
from services.mailing import lists

router = APIRouter(tags=["Lists"], route_class=JsonRoute)

Language = Annotated[
    str | None, Query(description="Such as `de`; English where we have no such language")
]


@router.get(
    "/lists/{list_id}/embed",
    responses=refuses(refusals.LIST_NOT_FOUND, refusals.LIST_NOT_OWNER),
)
@RECORDS.threaded
def read_embedded_form(
    state: StateOf, caller: ListReader, list_id: ListId, language: Language = None
) -> Envelope[EmbeddedForm]:
    """The list's sign-up form, to be pasted into a page of any site as plain HTML."""
    with state.resources.unit_of_work() as uow:
        shown = SignUpPage.read(uow, lists.owned(uow, caller, list_id), state.resources.settings)
    chosen = reader_languages.chosen(language or "")
    return envelope(embedded_form(state, shown, language=chosen))


@router.get(
    "/lists/{list_id}/previews/{part}",
    responses=refuses(refusals.LIST_NOT_FOUND, refusals.LIST_NOT_OWNER),
)
@RECORDS.threaded
def preview_list(
    state: StateOf,
    caller: ListReader,
    list_id: ListId,
    part: PreviewPart,
    language: Language = None,
) -> Envelope[ListPreview]:
    """A page or a mail of the list, with its look and words, as readers get it in a language.

    Its links lead nowhere.
    """
    chosen = reader_languages.chosen(language or "")
    with state.resources.unit_of_work() as uow:
        mailing_list = lists.owned(uow, caller, list_id)
        return envelope(preview(uow, state, mailing_list, part, chosen))


@router.post(
    "/lists/{list_id}/previews/{part}",
    responses=refuses(
        refusals.LIST_NOT_FOUND, refusals.LIST_NOT_OWNER, refusals.LIST_BUSY, *LIST_RULES
    ),
)
@ACTS_BY_LIST.threaded("list_id")
def preview_changed_list(
    state: StateOf,
    caller: ListEditor,
    list_id: ListId,
    part: PreviewPart,
    body: ListChanges,
    language: Language = None,
) -> Envelope[ListPreview]:
    """The same as if the list had been changed like this. Nothing is changed."""
    chosen = reader_languages.chosen(language or "")
    with state.resources.unit_of_work() as uow:
        mailing_list = lists.owned(uow, caller, list_id)
        trial = uow.session.begin_nested()
        lists.change(uow, mailing_list, body.sent(), state.challenges.configured)
        shown = preview(uow, state, mailing_list, part, chosen)
        trial.rollback()
    return envelope(shown)
