"""The console pages that show the segments and the tags of a list."""

from dataclasses import replace
from functools import partial
from http import HTTPStatus

from fastapi.responses import Response

from api.console.assets import CONSOLE_PATH
from api.console.members.filter_form import (
    FilterDraft,
    choices_of,
    draft_of_filter,
    draft_of_form,
    read_filter,
    with_rows,
)
from api.console.members.forms import (
    ALL_ACTIVE,
    SELECTION_PLACES,
    SelectionOf,
    ShownCount,
    shown_count,
)
from api.console.navigation import get_list_path
from api.console.requests import Console, ConsoleForm, ConsoleRequest, EmptyForm, build_router
from api.console.typed_forms import CORRECT_FIELDS_TEXT, TypedForm, parse_body
from api.limits.bulkheads import RECORDS
from api.limits.shares import SEARCHES_BY_CALLER
from api.paging import Cursor
from api.record_ids import ListId, PathId
from api.schemas.fields import TagChange
from api.state import Transaction
from core.errors import DomainError
from core.errors.mailing import SEGMENT_NAME_TAKEN, TAG_NAME_TAKEN
from services.paging import PageRequest
from services.subscriptions import segments, tags
from services.subscriptions.filters import member_filter

router = build_router(f"{CONSOLE_PATH}/lists/{{list_id}}")

SEGMENTS_ON_PAGE = 50
_PLACES = {**SELECTION_PLACES, SEGMENT_NAME_TAKEN.code: "name"}


@router.get("/segments")
def show_segments(
    console: Console, uow: Transaction, list_id: ListId, cursor: Cursor = None
) -> Response:
    mailing_list = console.get_own_list(uow, list_id)
    found = segments.list_segments(uow, mailing_list, PageRequest(SEGMENTS_ON_PAGE, cursor=cursor))
    return console.render_page(
        "segments.html", list=mailing_list, segments=found.rows, next_cursor=found.next_cursor
    )


@router.get("/segments/new")
def show_new_segment(console: Console, list_id: ListId, selection: SelectionOf) -> Response:
    """Show the form, with the filter of the members who were looked for just now."""
    with console.unit_of_work() as uow:
        mailing_list = console.get_own_list(uow, list_id)
        form, draft = TypedForm(), FilterDraft(None, selection.typed.get("filter", ""))
        try:
            written = selection.written(uow, mailing_list) or ALL_ACTIVE
            draft = draft_of_filter(written, choices_of(uow, mailing_list))
        except DomainError as error:
            form = form.add_error(error, SELECTION_PLACES)
    return _form_page(console, list_id, form, draft)


@router.post("/segments/new")
async def make_segment(console: ConsoleForm, list_id: ListId) -> Response:
    """Create the segment; a button of the filter shows the form again instead."""
    if "do" in console.form:
        return await SEARCHES_BY_CALLER.run(console.user_id, partial(_edited, console, list_id))
    return await RECORDS.run(_keep_segment, console, list_id)


@router.get("/segments/{segment_id}")
async def show_segment(
    console: Console, list_id: ListId, segment_id: PathId, count: str = ""
) -> Response:
    work = partial(_segment_page, console, list_id, segment_id, count)
    return await SEARCHES_BY_CALLER.run(console.user_id, work)


def _segment_page(console: ConsoleRequest, list_id: int, segment_id: int, asked: str) -> Response:
    with console.unit_of_work() as uow:
        mailing_list = console.get_own_list(uow, list_id)
        segment = segments.get_segment(uow, mailing_list.id, segment_id)
        [written] = member_filter.shown(uow, mailing_list, segment.filter)
        form = TypedForm({"name": segment.name})
        draft = draft_of_filter(written, choices_of(uow, mailing_list))
        try:
            wanted = member_filter.read(uow, mailing_list, written)
        except DomainError as error:
            # A field was retired, or has lost a choice: the page says so.
            stale = replace(form.add_error(error, SELECTION_PLACES), status=HTTPStatus.OK)
            return _form_page(console, list_id, stale, draft, segment_id)
    counted = shown_count(console.state.resources, mailing_list, wanted, asked, {})
    return _form_page(console, list_id, form, draft, segment_id, counted=counted)


@router.post("/segments/{segment_id}")
async def change_segment(console: ConsoleForm, list_id: ListId, segment_id: PathId) -> Response:
    """Change the segment; a button of the filter shows the form again instead."""
    if "do" in console.form:
        work = partial(_edited, console, list_id, segment_id)
        return await SEARCHES_BY_CALLER.run(console.user_id, work)
    return await RECORDS.run(_keep_segment, console, list_id, segment_id)


def _keep_segment(console: ConsoleRequest, list_id: int, segment_id: int | None = None) -> Response:
    """Create the segment, or change the one with this id."""
    draft, name = draft_of_form(console.form), console.form.get("name", "")
    if draft.mark_open():
        status = HTTPStatus.UNPROCESSABLE_ENTITY
        incomplete = TypedForm(console.form, problem=CORRECT_FIELDS_TEXT, status=status)
        return _form_page(console, list_id, incomplete, draft, segment_id)
    path = f"{get_list_path(list_id)}/segments/{segment_id}"
    notice = "The segment is changed."
    try:
        with console.unit_of_work() as uow:
            mailing_list = console.get_own_list(uow, list_id)
            if segment_id is None:
                made = segments.create_segment(uow, mailing_list, name, _written(draft))
                path = f"{get_list_path(list_id)}/members?segment={made.id}"
                notice = f"The segment “{made.name}” is created."
            else:
                segments.get_segment(uow, mailing_list.id, segment_id)
                values = {"name": name, "filter": _written(draft)}
                segments.change_segment(uow, mailing_list, segment_id, values)
    except DomainError as error:
        return _refused_page(console, list_id, error, draft, segment_id)
    return console.redirect_with_notice(path, notice)


@router.post("/segments/{segment_id}/delete")
def delete_segment(
    console: ConsoleForm, uow: Transaction, list_id: ListId, segment_id: PathId
) -> Response:
    """Delete the segment, and no member."""
    mailing_list = console.get_own_list(uow, list_id)
    name = segments.get_segment(uow, mailing_list.id, segment_id).name
    segments.delete_segment(uow, mailing_list, segment_id)
    path = f"{get_list_path(list_id)}/segments"
    return console.redirect_with_notice(path, f"The segment “{name}” is deleted. Its members stay.")


def _edited(console: ConsoleRequest, list_id: int, segment_id: int | None = None) -> Response:
    """Show the form with the rows that its button asked for, and how many members fit them."""
    form, draft, counted = TypedForm(console.form), draft_of_form(console.form), None
    try:
        with console.unit_of_work() as uow:
            mailing_list = console.get_own_list(uow, list_id)
            if segment_id is not None:
                segments.get_segment(uow, mailing_list.id, segment_id)
            written = draft.written()
            wanted = member_filter.read(uow, mailing_list, written or ALL_ACTIVE)
    except DomainError as error:
        return _refused_page(console, list_id, error, draft, segment_id, status=HTTPStatus.OK)
    if written is not None:
        counted = shown_count(console.state.resources, mailing_list, wanted, "", {})
        # The page that counts for longer would not have the rows.
        counted = replace(counted, recount=None)
    return _form_page(console, list_id, form, draft, segment_id, counted=counted)


def _written(draft: FilterDraft) -> object:
    return draft.written() or read_filter("null")


def _refused_page(
    console: ConsoleRequest,
    list_id: int,
    error: DomainError,
    draft: FilterDraft,
    segment_id: int | None = None,
    *,
    status: int | None = None,
) -> Response:
    form = console.add_error(error, _PLACES)
    if draft.mark(error):
        form = replace(form, errors={})
    form = form if status is None else replace(form, status=status)
    return _form_page(console, list_id, form, draft, segment_id)


def _form_page(
    console: ConsoleRequest,
    list_id: int,
    form: TypedForm,
    draft: FilterDraft,
    segment_id: int | None = None,
    *,
    counted: ShownCount | None = None,
) -> Response:
    with console.unit_of_work() as uow:
        mailing_list = console.get_own_list(uow, list_id)
        choices = choices_of(uow, mailing_list)
    draft = with_rows(draft, choices)
    form = replace(form, typed={**form.typed, "filter": draft.text})
    values = {"list": mailing_list, "segment_id": segment_id, "counted_now": counted}
    return console.render_form("segment.html", form, draft=draft, choices=choices, **values)


TAGS_ON_PAGE = 50
_TAG_PLACES = {TAG_NAME_TAKEN.code: "name"}


@router.get("/tags")
def show_tags(
    console: Console, uow: Transaction, list_id: ListId, cursor: Cursor = None
) -> Response:
    mailing_list = console.get_own_list(uow, list_id)
    found = tags.list_tags(uow, mailing_list.id, PageRequest(TAGS_ON_PAGE, cursor=cursor))
    return console.render_page(
        "tags.html", list=mailing_list, tags=found.rows, next_cursor=found.next_cursor
    )


@router.get("/tags/{tag_id}")
def show_tag(console: Console, list_id: ListId, tag_id: PathId, form: EmptyForm) -> Response:
    with console.unit_of_work() as uow:
        mailing_list = console.get_own_list(uow, list_id)
        tag = tags.get_tag(uow, mailing_list.id, tag_id)
    form = replace(form, typed={"name": tag.name, **form.typed})
    return console.render_form("tag.html", form, list=mailing_list, tag=tag)


@router.post("/tags/{tag_id}")
def rename_tag(console: ConsoleForm, list_id: ListId, tag_id: PathId) -> Response:
    try:
        with console.unit_of_work() as uow:
            mailing_list = console.get_own_list(uow, list_id)
            tags.get_tag(uow, mailing_list.id, tag_id)
            body = parse_body(TagChange, {"name": console.form.get("name", "")})
            tags.rename_tag(uow, mailing_list.id, tag_id, body.name)
    except DomainError as error:
        return show_tag(console, list_id, tag_id, console.add_error(error, _TAG_PLACES))
    return console.redirect_with_notice(
        f"{get_list_path(list_id)}/tags", f"The tag is called “{body.name}” now."
    )


@router.post("/tags/{tag_id}/delete")
def delete_tag(console: ConsoleForm, list_id: ListId, tag_id: PathId) -> Response:
    try:
        with console.unit_of_work() as uow:
            mailing_list = console.get_own_list(uow, list_id)
            name = tags.get_tag(uow, mailing_list.id, tag_id).name
            tags.delete_tag(uow, mailing_list.id, tag_id)
    except DomainError as error:
        return show_tag(console, list_id, tag_id, console.add_error(error, _TAG_PLACES))
    return console.redirect_with_notice(
        f"{get_list_path(list_id)}/tags", f"No member has the tag “{name}” any more."
    )
