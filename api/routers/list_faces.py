"""What a list shows to readers, for its owner."""

from typing import Annotated

from fastapi import APIRouter, Query

from api.access.requirements import ListReader
from api.bodies.json_route import JsonRoute
from api.limits.bulkheads import RECORDS
from api.openapi import refuses
from api.parameters import ListId, StateOf
from api.readers.answering import SignUpPage
from api.readers.embedding import embedded_form
from api.schemas.envelope import Envelope, envelope
from api.schemas.lists import EmbeddedForm
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
        shown = SignUpPage.read(uow, lists.owned(uow, caller, list_id))
    chosen = reader_languages.chosen(language or "")
    return envelope(embedded_form(state, shown, language=chosen))
