"""Pages on which an owner manages the segments and the tags of a list."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from http import HTTPStatus
from time import monotonic
from typing import Any
from urllib.parse import urlencode

from fastapi.responses import Response

from api.console.assets import CONSOLE_PATH
from api.console.members import watches as watch_pages
from api.console.members.filter_choices import list_choices, list_ready_made_filters
from api.console.members.filter_form import (
    FilterDraft,
    build_draft,
    convert_to_rows,
    describe_filter,
    parse_filter,
    read_draft,
)
from api.console.members.forms import (
    ALL_ACTIVE,
    EXACT_COUNT,
    NOBODY,
    SELECTION_PLACES,
    MemberCount,
    Selection,
    count_selection,
    format_json,
)
from api.console.members.watches import CONFIRMED
from api.console.navigation import get_list_path
from api.console.plan_notices import find_plan_notice
from api.console.requests import (
    ConsoleRequest,
    EditForm,
    EditPage,
    EmptyForm,
    FiguresPage,
    build_router,
    shows_errors_on,
    threaded_as_search,
)
from api.console.typed_forms import CORRECT_FIELDS_TEXT, TypedForm, parse_body
from api.limits.bulkheads import RECORDS
from api.paging import Cursor
from api.record_ids import ListId, PathId
from api.schemas.fields import TagChange
from api.state import Transaction
from core.errors import DomainError
from core.errors.mailing import SEGMENT_NAME_TAKEN, TAG_NAME_TAKEN
from core.settings.notations import PlanQuota
from models import MailingList
from services.paging import PageRequest
from services.subscriptions import segments, tags
from services.subscriptions.filters import member_filter
from services.subscriptions.filters.member_filter import MemberFilter
from services.subscriptions.watches import watches
from storage.unit_of_work import UnitOfWork

router = build_router(f"{CONSOLE_PATH}/lists/{{list_id}}")

SEGMENTS_ON_PAGE = 50
# A page with segments or tags spends at most this time on counting their members.
MAX_COUNTING_TIME = timedelta(milliseconds=500)
# The time limit for the exact counts, which the page requests shortly after loading.
MAX_EXACT_COUNTING_TIME = timedelta(seconds=4)
TAGS_ON_PAGE = 50
# Maps an error code to the form field that shows the error.
_TAG_PLACES = {TAG_NAME_TAKEN.code: "name"}
_PLACES = {**SELECTION_PLACES, SEGMENT_NAME_TAKEN.code: "name"}


@router.get("/segments")
@threaded_as_search
def show_segments(
    console: FiguresPage, uow: Transaction, list_id: ListId, cursor: Cursor = None, count: str = ""
) -> Response:
    mailing_list = console.get_own_list(uow, list_id)
    page_request = PageRequest(SEGMENTS_ON_PAGE, cursor=cursor)
    page = segments.list_segments(uow, mailing_list, page_request, with_filters=True)
    filters = [
        partial(
            member_filter.read_stored_filter, mailing_list=mailing_list, stored_filter=each.filter
        )
        for each in page.rows
    ]
    choices = list_choices(uow, mailing_list)
    filters_json = member_filter.restore_names(
        uow, mailing_list, *(each.filter for each in page.rows)
    )
    conditions = [describe_filter(build_draft(each, choices), choices) for each in filters_json]
    watch_by_segment = watches.find_watches(uow, [each.id for each in page.rows])
    marks = [watch_pages.describe_watch(watch_by_segment.get(each.id)) for each in page.rows]
    counts = _count_matches(console, uow, mailing_list, filters, count)
    return console.render_page(
        "segments.html",
        list=mailing_list,
        segments=list(zip(page.rows, marks, conditions, counts, strict=True)),
        recount=_build_recount_query(counts, cursor, count),
        suggestions=[
            (name, urlencode({"name": name, "filter": text}))
            for name, text in list_ready_made_filters(mailing_list).items()
        ],
        next_cursor=page.next_cursor,
    )


def _count_matches(
    console: ConsoleRequest,
    uow: UnitOfWork,
    mailing_list: MailingList,
    filters: Sequence[Callable[[UnitOfWork], MemberFilter]],
    count: str,
) -> list[MemberCount | None]:
    """Return the number of matching members for each filter, ``NOBODY`` for an invalid filter.

    The filters share ``MAX_COUNTING_TIME``, or the longer limit for exact counts. After this time,
    all remaining filters get ``None``.

    ``count``: ``EXACT_COUNT`` for exact counts.
    """
    max_time = MAX_EXACT_COUNTING_TIME if count == EXACT_COUNT else MAX_COUNTING_TIME
    end = monotonic() + max_time.total_seconds()
    counts: list[MemberCount | None] = []
    for position, read_filter in enumerate(filters):
        seconds = end - monotonic()
        if seconds <= 0:
            counts.append(None)
            continue
        try:
            parsed_filter = read_filter(uow)
        except DomainError:
            counts.append(NOBODY)
            continue
        uow.roll_back()
        share = timedelta(seconds=seconds / (len(filters) - position))
        counts.append(
            count_selection(
                console.state.resources, mailing_list, parsed_filter, count, first_within=share
            )
        )
    return counts


def _build_recount_query(
    counts: Sequence[MemberCount | None], cursor: str | None, count: str
) -> str | None:
    """Return the query of the page with exact counts, or ``None`` if the counts are final."""
    if count == EXACT_COUNT or all(each and each.is_exact for each in counts):
        return None
    page = {} if cursor is None else {"cursor": cursor}
    return f"?{urlencode({**page, 'count': EXACT_COUNT})}"


@router.get("/segments/new")
@threaded_as_search
def show_new_segment(
    console: EditPage, uow: Transaction, list_id: ListId, selection: Selection, name: str = ""
) -> Response:
    """Show the form for a new segment, filled with the name and search criteria in the URL."""
    mailing_list = console.get_own_list(uow, list_id)
    form = TypedForm({"name": name})
    draft = FilterDraft(None, selection.typed.get("filter", ""))
    try:
        filter_json = selection.build_filter(uow, mailing_list) or ALL_ACTIVE
        draft = build_draft(filter_json, list_choices(uow, mailing_list))
        parsed_filter = member_filter.read_filter(uow, mailing_list, filter_json)
    except DomainError as error:
        form = form.add_error(error, SELECTION_PLACES)
        return _render_segment_form(console, uow, list_id, form, draft)
    uow.roll_back()
    member_count = count_selection(
        console.state.resources, mailing_list, parsed_filter, query=selection.typed
    )
    # Omit the link "Show the exact number", because the segment form has a button that counts the
    # members.
    has_count = member_count.is_exact or member_count.count > 0
    return _render_segment_form(
        console,
        uow,
        list_id,
        form,
        draft,
        member_count=replace(member_count, recount=None) if has_count else None,
    )


@router.get("/segments/{segment_id}")
@threaded_as_search
def show_segment(
    console: FiguresPage,
    uow: Transaction,
    list_id: ListId,
    segment_id: PathId,
    form: EmptyForm,
    count: str = "",
) -> Response:
    """Show a segment. ``form`` is the form with which the owner watches the segment."""
    watch_form = form
    mailing_list = console.get_own_list(uow, list_id)
    segment = segments.get_segment(uow, mailing_list.id, segment_id)
    [filter_json] = member_filter.restore_names(uow, mailing_list, segment.filter)
    form = TypedForm({"name": segment.name})
    draft = build_draft(filter_json, list_choices(uow, mailing_list))
    try:
        parsed_filter = member_filter.read_filter(uow, mailing_list, filter_json)
    except DomainError as error:
        # The segment's filter is invalid, because the owner has retired a member field or removed a
        # choice.
        form = replace(form.add_error(error, SELECTION_PLACES), status=HTTPStatus.OK)
        return _render_segment_form(
            console, uow, list_id, form, draft, segment_id, watch_form=watch_form
        )
    entry_count = watch_pages.count_entries(console, uow, mailing_list, segment_id, count)
    uow.roll_back()
    member_count = count_selection(console.state.resources, mailing_list, parsed_filter, count)
    return _render_segment_form(
        console,
        uow,
        list_id,
        replace(form, status=watch_form.status),
        draft,
        segment_id,
        member_count=member_count,
        entry_count=entry_count,
        watch_form=watch_form,
    )


@router.post("/segments/new")
async def create_segment(console: EditForm, list_id: ListId) -> Response:
    return await _handle_form(console, list_id, None)


@router.post("/segments/{segment_id}")
async def change_segment(console: EditForm, list_id: ListId, segment_id: PathId) -> Response:
    return await _handle_form(console, list_id, segment_id)


async def _handle_form(console: ConsoleRequest, list_id: int, segment_id: int | None) -> Response:
    """Buttons that edit the filter show the form again, with the edited filter."""
    if "do" in console.form:
        handler = threaded_as_search(_render_edited_draft)
    else:
        handler = RECORDS.threaded(_save_segment)
    uow = console.unit_of_work()
    return await handler(console=console, uow=uow, list_id=list_id, segment_id=segment_id)


def _save_segment(
    console: ConsoleRequest, uow: UnitOfWork, list_id: int, segment_id: int | None
) -> Response:
    """Change the segment, or create a segment if ``segment_id`` is ``None``."""
    draft = read_draft(console.form)
    name = console.form.get("name", "")
    if draft.add_missing_value_errors():
        status = HTTPStatus.UNPROCESSABLE_ENTITY
        form = TypedForm(console.form, problem=CORRECT_FIELDS_TEXT, status=status)
        return _render_segment_form(console, uow, list_id, form, draft, segment_id)
    path = f"{get_list_path(list_id)}/segments/{segment_id}"
    notice = "The changes were saved."
    try:
        mailing_list = console.get_own_list(uow, list_id)
        if segment_id is None:
            segment = segments.create_segment(uow, mailing_list, name, _get_filter(draft))
            path = f"{get_list_path(list_id)}/members?segment={segment.id}"
            notice = f"The segment “{segment.name}” was created."
        else:
            filter_before = segments.get_segment(uow, mailing_list.id, segment_id).filter
            values = {"name": name, "filter": _get_filter(draft)}
            segment = segments.change_segment(uow, mailing_list, segment_id, values)
            is_watched = watches.find_watch(uow, segment_id) is not None
            is_confirmed = segment.filter == filter_before or CONFIRMED in console.form
            if is_watched and not is_confirmed:
                uow.roll_back()
                return _render_confirmation(console, uow, list_id, segment_id, values)
    except DomainError as error:
        return _render_error(console, uow, list_id, error, draft, segment_id)
    return console.redirect(path, notice)


def _render_confirmation(
    console: ConsoleRequest, uow: UnitOfWork, list_id: int, segment_id: int, values: dict[str, Any]
) -> Response:
    """Ask the owner whether to change the filter of a watched segment."""
    return console.render_page(
        "confirm_segment.html",
        list=console.get_own_list(uow, list_id),
        segment=segments.get_segment(uow, list_id, segment_id),
        filter_json=values["filter"],
        values={**values, "filter": format_json(values["filter"]), CONFIRMED: "yes"},
    )


@router.post("/segments/{segment_id}/watch")
@shows_errors_on(show_segment, watch_pages.WATCH_PLACES)
def change_watch(
    console: EditForm, uow: Transaction, list_id: ListId, segment_id: PathId
) -> Response:
    mailing_list = console.get_own_list(uow, list_id)
    watch = watch_pages.read_watch(console.form)
    notice = "Pressroom watches the segment, and compares it within a few minutes."
    if watch is None:
        notice = "The segment is no longer watched."
    segments.change_segment(uow, mailing_list, segment_id, {"watch": watch})
    return console.redirect(f"{get_list_path(list_id)}/segments/{segment_id}", notice)


@router.post("/segments/{segment_id}/delete")
def delete_segment(
    console: EditForm, uow: Transaction, list_id: ListId, segment_id: PathId
) -> Response:
    """Delete a segment, but keep its members on the list."""
    mailing_list = console.get_own_list(uow, list_id)
    name = segments.get_segment(uow, mailing_list.id, segment_id).name
    segments.delete_segment(uow, mailing_list, segment_id)
    path = f"{get_list_path(list_id)}/segments"
    return console.redirect(
        path, f"The segment “{name}” was deleted. Its members stay on the list."
    )


def _render_edited_draft(
    console: ConsoleRequest, uow: UnitOfWork, list_id: int, segment_id: int | None
) -> Response:
    form = TypedForm(console.form)
    draft = read_draft(console.form)
    try:
        mailing_list = console.get_own_list(uow, list_id)
        if segment_id is not None:
            segments.get_segment(uow, mailing_list.id, segment_id)
        filter_json = draft.to_json()
        parsed_filter = member_filter.read_filter(uow, mailing_list, filter_json or ALL_ACTIVE)
    except DomainError as error:
        return _render_error(console, uow, list_id, error, draft, segment_id, status=HTTPStatus.OK)
    member_count = None
    if filter_json is not None and not draft.is_incomplete:
        uow.roll_back()
        member_count = count_selection(
            console.state.resources, mailing_list, parsed_filter, EXACT_COUNT
        )
        # Don't show the link to the exact count, because following the link would discard the
        # edited filter.
        member_count = replace(member_count, recount=None)
    return _render_segment_form(
        console, uow, list_id, form, draft, segment_id, member_count=member_count
    )


def _get_filter(draft: FilterDraft) -> object:
    return draft.to_json() or parse_filter("null")


def _render_error(
    console: ConsoleRequest,
    uow: UnitOfWork,
    list_id: int,
    error: DomainError,
    draft: FilterDraft,
    segment_id: int | None = None,
    *,
    status: int | None = None,
) -> Response:
    uow.roll_back()
    form = console.add_error(error, _PLACES)
    if draft.add_error(error):
        form = replace(form, errors={})
    form = form if status is None else replace(form, status=status)
    return _render_segment_form(console, uow, list_id, form, draft, segment_id)


def _render_segment_form(
    console: ConsoleRequest,
    uow: UnitOfWork,
    list_id: int,
    form: TypedForm,
    draft: FilterDraft,
    segment_id: int | None = None,
    *,
    member_count: MemberCount | None = None,
    entry_count: MemberCount | None = None,
    watch_form: TypedForm | None = None,
) -> Response:
    mailing_list = console.get_own_list(uow, list_id)
    choices = list_choices(uow, mailing_list)
    notice = None
    segment_name = ""
    watch = None if segment_id is None else watches.find_watch(uow, segment_id)
    if segment_id is None:
        notice = find_plan_notice(uow, console.account_id, PlanQuota.STORAGE_MB)
    else:
        segment_name = segments.get_segment(uow, list_id, segment_id).name
    draft = convert_to_rows(draft, choices)
    form = replace(form, typed={**form.typed, "filter": draft.text})
    return console.render_page(
        "segment.html",
        form,
        list=mailing_list,
        draft=draft,
        choices=choices,
        refusal=notice,
        segment_id=segment_id,
        segment_name=segment_name,
        member_count=member_count,
        entry_count=entry_count,
        **watch_pages.build_watch_values(watch, watch_form or TypedForm()),
    )


@router.get("/tags")
@threaded_as_search
def show_tags(
    console: FiguresPage, uow: Transaction, list_id: ListId, cursor: Cursor = None, count: str = ""
) -> Response:
    mailing_list = console.get_own_list(uow, list_id)
    page = tags.list_tags(uow, mailing_list.id, PageRequest(TAGS_ON_PAGE, cursor=cursor))
    if cursor is None and page.next_cursor is None:
        page = replace(page, rows=sorted(page.rows, key=lambda tag: tag.name.casefold()))
    filters = [
        partial(
            member_filter.read_filter,
            mailing_list=mailing_list,
            written={"field": "tag", "is": each.name},
        )
        for each in page.rows
    ]
    counts = _count_matches(console, uow, mailing_list, filters, count)
    return console.render_page(
        "tags.html",
        list=mailing_list,
        tags=list(zip(page.rows, counts, strict=True)),
        recount=_build_recount_query(counts, cursor, count),
        next_cursor=page.next_cursor,
    )


@router.get("/tags/{tag_id}")
def show_tag(
    console: EditPage, uow: Transaction, list_id: ListId, tag_id: PathId, form: EmptyForm
) -> Response:
    mailing_list = console.get_own_list(uow, list_id)
    tag = tags.get_tag(uow, mailing_list.id, tag_id)
    form = replace(form, typed={"name": tag.name, **form.typed})
    return console.render_page("tag.html", form, list=mailing_list, tag=tag)


@router.post("/tags/{tag_id}")
@shows_errors_on(show_tag, _TAG_PLACES)
def rename_tag(console: EditForm, uow: Transaction, list_id: ListId, tag_id: PathId) -> Response:
    mailing_list = console.get_own_list(uow, list_id)
    tags.get_tag(uow, mailing_list.id, tag_id)
    body = parse_body(TagChange, {"name": console.form.get("name", "")})
    tags.rename_tag(uow, mailing_list.id, tag_id, body.name)
    return console.redirect(
        f"{get_list_path(list_id)}/tags", f"The tag was renamed to “{body.name}”."
    )


@router.get("/tags/{tag_id}/delete")
@threaded_as_search
def show_tag_deletion(
    console: EditPage, uow: Transaction, list_id: ListId, tag_id: PathId
) -> Response:
    mailing_list = console.get_own_list(uow, list_id)
    tag = tags.get_tag(uow, mailing_list.id, tag_id)
    written = {"field": "tag", "is": tag.name}
    parsed_filter = member_filter.read_filter(uow, mailing_list, written)
    watched = watches.list_watched_users_of_tag(uow, mailing_list.id, tag.id)
    uow.roll_back()
    member_count = count_selection(console.state.resources, mailing_list, parsed_filter)
    return console.render_page(
        "delete_tag.html",
        list=mailing_list,
        tag=tag,
        member_count=member_count,
        watched_segments=watched,
    )


@router.post("/tags/{tag_id}/delete")
@shows_errors_on(show_tag, _TAG_PLACES)
def delete_tag(console: EditForm, uow: Transaction, list_id: ListId, tag_id: PathId) -> Response:
    mailing_list = console.get_own_list(uow, list_id)
    name = tags.get_tag(uow, mailing_list.id, tag_id).name
    tags.delete_tag(uow, mailing_list.id, tag_id)
    return console.redirect(f"{get_list_path(list_id)}/tags", f"The tag “{name}” was deleted.")
