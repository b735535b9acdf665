"""What a list shows to readers: its page, its look, its form for other sites, and its mail."""

from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from api.access.requirements import PUBLIC
from api.console.assets import CONSOLE_PATH
from api.console.navigation import list_path
from api.console.of_images.shown_images import media_sources
from api.console.of_lists.face_forms import face_changes, face_form, language_names, logo_choices
from api.console.own_lists import own_list
from api.console.typed_forms import TypedForm
from api.console.visits import ConsoleVisit, FormVisit, Visit
from api.limits.bulkheads import RECORDS
from api.limits.shares import ACTS_BY_LIST
from api.list_answers import list_response
from api.parameters import ListId
from api.readers.answering import SignUpPage
from api.readers.embedding import embedded_form
from api.readers.previews import preview
from api.schemas.lists import Channel, PreviewPart
from core.errors import DomainError
from core.languages import reader_languages
from services.mailing import lists
from services.media.attachments import records
from services.paging import PageRequest

# No operations of the API, so not in its document.
router = APIRouter(
    prefix=f"{CONSOLE_PATH}/lists/{{list_id}}/public",
    dependencies=[PUBLIC],
    include_in_schema=False,
)

IMAGES_TO_CHOOSE = 100


@router.get("")
@RECORDS.threaded
def show_face(visit: Visit, list_id: ListId, language: str = "") -> Response:
    """The list as readers meet it, and the form that changes it."""
    shown = _shown(visit, list_id)
    return _page(visit, shown, face_form(shown), language)


@router.post("")
@ACTS_BY_LIST.threaded("list_id")
def change_face(visit: FormVisit, list_id: ListId) -> Response:
    """Set what the form has other than the list."""
    shown = _shown(visit, list_id)
    try:
        changes = face_changes(visit.form, shown).sent()
        with visit.unit_of_work() as uow:
            mailing_list = own_list(uow, visit.caller, list_id)
            lists.change(uow, mailing_list, changes, visit.state.challenges.configured)
    except DomainError as error:
        return _page(visit, shown, visit.refused(error))
    notice = "What readers see is changed." if changes else "Nothing was to be changed."
    return visit.done(f"{list_path(shown.id)}/public", notice)


def _shown(visit: ConsoleVisit, list_id: int) -> Channel:
    with visit.unit_of_work() as uow:
        return list_response(uow, visit.state, own_list(uow, visit.caller, list_id))


def _page(visit: ConsoleVisit, shown: Channel, form: TypedForm, asked: str = "") -> Response:
    language = reader_languages.chosen(asked)
    return visit.form_page(
        "list_face.html",
        form,
        foreign=media_sources(visit.state),
        list=shown,
        language=language,
        languages=language_names(),
        **_as_readers_meet_it(visit, shown, language),
    )


def _as_readers_meet_it(visit: ConsoleVisit, shown: Channel, language: str) -> dict[str, Any]:
    state = visit.state
    with visit.unit_of_work() as uow:
        mailing_list = own_list(uow, visit.caller, shown.id)
        page = SignUpPage.read(uow, mailing_list, state.resources.settings)
        images = records.list_of(uow, visit.caller, PageRequest(IMAGES_TO_CHOOSE)).rows
        mail = preview(uow, state, mailing_list, PreviewPart.CONFIRMATION_MAIL, language)
        embedded = embedded_form(state, page, language=language)
    return {
        "embedded": embedded,
        "fields": [field.label for field in page.public.values()],
        "has_wording": page.wording is not None,
        "logo_url": page.look.logo_url,
        "logos": logo_choices(images, shown),
        "mail": mail,
    }
