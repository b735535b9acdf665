"""The segments of a list: filters that it keeps under a name."""

from dataclasses import replace
from functools import partial
from http import HTTPStatus

from fastapi import APIRouter
from fastapi.responses import Response

from api.access.requirements import PUBLIC
from api.console.assets import CONSOLE_PATH
from api.console.navigation import list_path
from api.console.of_members.member_selections import (
    ALL_ACTIVE,
    PLACES,
    MemberSelection,
    SelectionOf,
    as_json,
)
from api.console.own_lists import own_list
from api.console.typed_forms import TypedForm
from api.console.visits import ConsoleVisit, FormVisit, Visit
from api.limits.bulkheads import RECORDS
from api.limits.shares import SEARCHES_BY_CALLER
from api.list_answers import list_response
from api.parameters import Cursor, ListId, PathId
from core.errors import DomainError
from core.refusals.segments import SEGMENT_NAME_TAKEN
from services.mailing.filters import member_filter
from services.mailing.segments import counting, saved, stored_filters
from services.mailing.segments.counting import MemberCount
from services.paging import PageRequest

# No operations of the API, so not in its document.
router = APIRouter(
    prefix=f"{CONSOLE_PATH}/lists/{{list_id}}/segments",
    dependencies=[PUBLIC],
    include_in_schema=False,
)

SEGMENTS_ON_PAGE = 50
_PLACES = {**PLACES, SEGMENT_NAME_TAKEN.code: "name"}


@router.get("")
@RECORDS.threaded
def show_segments(visit: Visit, list_id: ListId, cursor: Cursor = None) -> Response:
    with visit.unit_of_work() as uow:
        mailing_list = own_list(uow, visit.caller, list_id)
        found = saved.list_of(uow, mailing_list, PageRequest(SEGMENTS_ON_PAGE, cursor=cursor))
        shown = list_response(uow, visit.state, mailing_list)
    return visit.page(
        "segments.html",
        list=shown,
        segments=found.rows,
        next_cursor=found.next_cursor,
        cursor=cursor,
    )


@router.get("/new")
@RECORDS.threaded
def show_new_segment(visit: Visit, list_id: ListId, selection: SelectionOf) -> Response:
    """The form, with the filter of the members who were looked for just now."""
    with visit.unit_of_work() as uow:
        mailing_list = own_list(uow, visit.caller, list_id)
        try:
            written = selection.written(uow, mailing_list)
        except DomainError as error:
            form = TypedForm({"filter": selection.typed.get("filter", "")}).refused(error, PLACES)
        else:
            form = TypedForm({"filter": as_json(written or ALL_ACTIVE)})
    return _form_page(visit, list_id, form)


@router.post("/new")
@RECORDS.threaded
def make_segment(visit: FormVisit, list_id: ListId) -> Response:
    try:
        with visit.unit_of_work() as uow:
            mailing_list = own_list(uow, visit.caller, list_id)
            written = _written(visit)
            made = saved.create(uow, mailing_list, visit.form.get("name", ""), written)
            segment_id, name = made.id, made.name
    except DomainError as error:
        return _form_page(visit, list_id, visit.refused(error, _PLACES))
    path = f"{list_path(list_id)}/members?segment={segment_id}"
    return visit.done(path, f"The segment “{name}” is made.")


@router.get("/{segment_id}")
async def show_segment(visit: Visit, list_id: ListId, segment_id: PathId) -> Response:
    """One segment, with the number of members whom it means now."""
    work = partial(_segment_page, visit, list_id, segment_id)
    return await SEARCHES_BY_CALLER.run(visit.user_id, work)


def _segment_page(visit: ConsoleVisit, list_id: int, segment_id: int) -> Response:
    with visit.unit_of_work() as uow:
        mailing_list = own_list(uow, visit.caller, list_id)
        segment = saved.get(uow, mailing_list.id, segment_id)
        [written] = stored_filters.shown(uow, mailing_list, segment.filter)
        form = TypedForm({"name": segment.name, "filter": as_json(written)})
        try:
            wanted = member_filter.read(uow, mailing_list, written)
        except DomainError as error:
            # Of a field that was retired, or a choice that its field has lost: the page says so.
            stale = replace(form.refused(error, PLACES), status=HTTPStatus.OK)
            return _form_page(visit, list_id, stale, segment_id)
    counted = counting.count(visit.state.resources, mailing_list, wanted)
    return _form_page(visit, list_id, form, segment_id, counted)


@router.post("/{segment_id}")
@RECORDS.threaded
def change_segment(visit: FormVisit, list_id: ListId, segment_id: PathId) -> Response:
    try:
        with visit.unit_of_work() as uow:
            mailing_list = own_list(uow, visit.caller, list_id)
            saved.get(uow, mailing_list.id, segment_id)
            values = {"name": visit.form.get("name", ""), "filter": _written(visit)}
            saved.change(uow, mailing_list, segment_id, values)
    except DomainError as error:
        return _form_page(visit, list_id, visit.refused(error, _PLACES), segment_id)
    return visit.done(f"{list_path(list_id)}/segments/{segment_id}", "The segment is changed.")


@router.post("/{segment_id}/delete")
@RECORDS.threaded
def delete_segment(visit: FormVisit, list_id: ListId, segment_id: PathId) -> Response:
    """Delete the segment, and no member."""
    with visit.unit_of_work() as uow:
        mailing_list = own_list(uow, visit.caller, list_id)
        name = saved.get(uow, mailing_list.id, segment_id).name
        saved.remove(uow, mailing_list, segment_id)
    path = f"{list_path(list_id)}/segments"
    return visit.done(path, f"The segment “{name}” is deleted. Its members stay.")


def _written(visit: ConsoleVisit) -> object:
    """The filter of the form; raises ``filter.invalid`` for a text that is none."""
    selection = MemberSelection({"filter": visit.form.get("filter", "").strip() or "null"})
    return selection.typed_filter


def _form_page(
    visit: ConsoleVisit,
    list_id: int,
    form: TypedForm,
    segment_id: int | None = None,
    counted: MemberCount | None = None,
) -> Response:
    with visit.unit_of_work() as uow:
        shown = list_response(uow, visit.state, own_list(uow, visit.caller, list_id))
    values = {"list": shown, "segment_id": segment_id, "counted_now": counted}
    return visit.form_page("segment.html", form, **values)
