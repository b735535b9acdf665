"""The tags of a list: found, renamed and taken off all members."""

from fastapi import APIRouter
from fastapi.responses import Response

from api.access.requirements import PUBLIC
from api.console.assets import CONSOLE_PATH
from api.console.navigation import list_path
from api.console.own_lists import own_list
from api.console.typed_forms import TypedForm, body_of_form
from api.console.visits import ConsoleVisit, FormVisit, Visit
from api.limits.bulkheads import RECORDS
from api.list_answers import list_response
from api.parameters import Cursor, ListId, PathId
from api.schemas.attributes import TagChange
from core.errors import DomainError
from core.refusals.attributes import TAG_NAME_TAKEN
from services.mailing.attributes import tags
from services.paging import PageRequest

# No operations of the API, so not in its document.
router = APIRouter(
    prefix=f"{CONSOLE_PATH}/lists/{{list_id}}/tags", dependencies=[PUBLIC], include_in_schema=False
)

TAGS_ON_PAGE = 50
_PLACES = {TAG_NAME_TAKEN.code: "name"}


@router.get("")
@RECORDS.threaded
def show_tags(visit: Visit, list_id: ListId, cursor: Cursor = None) -> Response:
    with visit.unit_of_work() as uow:
        mailing_list = own_list(uow, visit.caller, list_id)
        found = tags.page(uow, mailing_list.id, PageRequest(TAGS_ON_PAGE, cursor=cursor))
        shown = list_response(uow, visit.state, mailing_list)
    return visit.page(
        "tags.html", list=shown, tags=found.rows, next_cursor=found.next_cursor, cursor=cursor
    )


@router.get("/{tag_id}")
@RECORDS.threaded
def show_tag(visit: Visit, list_id: ListId, tag_id: PathId) -> Response:
    return _tag_page(visit, list_id, tag_id)


@router.post("/{tag_id}")
@RECORDS.threaded
def rename_tag(visit: FormVisit, list_id: ListId, tag_id: PathId) -> Response:
    try:
        with visit.unit_of_work() as uow:
            mailing_list = own_list(uow, visit.caller, list_id)
            tags.get(uow, mailing_list.id, tag_id)
            body = body_of_form(TagChange, {"name": visit.form.get("name", "")})
            tags.rename(uow, mailing_list.id, tag_id, body.name)
    except DomainError as error:
        return _tag_page(visit, list_id, tag_id, visit.refused(error, _PLACES))
    return visit.done(f"{list_path(list_id)}/tags", f"The tag is called “{body.name}” now.")


@router.post("/{tag_id}/delete")
@RECORDS.threaded
def delete_tag(visit: FormVisit, list_id: ListId, tag_id: PathId) -> Response:
    """Take the tag off all members."""
    with visit.unit_of_work() as uow:
        mailing_list = own_list(uow, visit.caller, list_id)
        name = tags.get(uow, mailing_list.id, tag_id).name
        tags.forget(uow, mailing_list.id, tag_id)
    return visit.done(f"{list_path(list_id)}/tags", f"No member has the tag “{name}” any more.")


def _tag_page(
    visit: ConsoleVisit, list_id: int, tag_id: int, form: TypedForm | None = None
) -> Response:
    with visit.unit_of_work() as uow:
        mailing_list = own_list(uow, visit.caller, list_id)
        tag = tags.get(uow, mailing_list.id, tag_id)
        shown = list_response(uow, visit.state, mailing_list)
        form = form or TypedForm({"name": tag.name})
        return visit.form_page("tag.html", form, list=shown, tag=tag)
