"""Pages on which an owner searches the members of a list, and adds members."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

import orjson
from fastapi.responses import Response

from api.console.assets import CONSOLE_PATH
from api.console.console_display import TIERS
from api.console.members import filter_choices, filter_form
from api.console.members.columns import build_heads, list_columns
from api.console.members.filter_choices import Choice
from api.console.members.filter_form import FilterDraft
from api.console.members.forms import (
    ALL_ACTIVE,
    MAX_COLUMNS,
    SELECTION_PLACES,
    MemberSelection,
    Selection,
    format_json,
)
from api.console.members.member_page import build_actor, get_member_path
from api.console.members.views import describe_marks
from api.console.plan_notices import ADDING_MEMBERS_TEXT, can_import, find_plan_notice
from api.console.requests import (
    ConsoleRequest,
    EditForm,
    EditPage,
    EmptyForm,
    MembersPage,
    build_router,
    shows_errors_on,
    threaded_as_search,
)
from api.console.typed_forms import TypedForm, parse_body, read_text
from api.limits.bulkheads import RECORDS
from api.limits.keyed_bulkheads import threaded_by_list
from api.paging import Cursor
from api.record_ids import ListId
from api.schemas.subscriptions import MemberUpsert
from api.state import Transaction
from core.errors import DomainError
from core.errors.mailing import MEMBER_DENIED, SUBSCRIPTION_OPTED_OUT
from core.errors.people import EMAIL_INVALID
from core.settings.notations import PlanQuota
from models import MailingList
from models import SubscriptionStatus as Status
from services.accounts import email_addresses
from services.paging import PageOfRows, PageRequest
from services.subscriptions import fields, segments, subscriber_counts
from services.subscriptions.filters import member_filter, searching, sorting
from services.subscriptions.filters.sorting import MAX_SORTED_MEMBERS, MemberOrder
from services.subscriptions.members import member_pages, members
from services.subscriptions.members.member_pages import MemberFilters
from storage.unit_of_work import UnitOfWork

router = build_router(f"{CONSOLE_PATH}/lists/{{list_id}}/members")

MEMBERS_ON_PAGE = 40
SEGMENTS_TO_CHOOSE = 100
# Maps an error code to the form field that shows the error.
_ADDRESS_PLACES = {
    EMAIL_INVALID.code: "email",
    SUBSCRIPTION_OPTED_OUT.code: "email",
    MEMBER_DENIED.code: "email",
}


@router.get("")
async def show_members(
    console: MembersPage, list_id: ListId, selection: Selection, cursor: Cursor = None
) -> Response:
    is_listing = selection.is_plain and "sort" not in selection.typed
    in_thread = RECORDS.threaded if is_listing else threaded_as_search
    return await in_thread(_render_members)(
        console=console,
        uow=console.unit_of_work(),
        list_id=list_id,
        selection=selection,
        cursor=cursor,
    )


def _render_members(
    console: ConsoleRequest,
    uow: UnitOfWork,
    list_id: int,
    selection: MemberSelection,
    cursor: str | None,
) -> Response:
    form = TypedForm(selection.typed)
    draft = selection.draft
    found_members = _FoundMembers(PageOfRows([], None), None, None)
    order = None
    filter_json = None
    page_request = PageRequest(MEMBERS_ON_PAGE, cursor=cursor)
    mailing_list = console.get_own_list(uow, list_id)
    own_segments = segments.list_segments(uow, mailing_list, PageRequest(SEGMENTS_TO_CHOOSE)).rows
    segment_id = selection.segment_id
    if segment_id is not None and segment_id not in {each.id for each in own_segments}:
        own_segments.append(segments.get_segment(uow, mailing_list.id, segment_id))
    choices = filter_choices.list_choices(uow, mailing_list)
    own_fields = fields.read_own_fields(uow, console.account_id).by_key
    can_add = can_import(uow, console.account_id)
    draft = filter_form.open_first_row(filter_form.convert_to_rows(draft, choices), choices)
    segment_choices = [(str(each.id), each.name) for each in own_segments]
    common_filters = _build_common_filters(mailing_list, selection)
    try:
        if (draft_json := draft.to_json()) is not None:
            # Validate the edited filter before combining it with other criteria, so that an error
            # contains the path of the invalid row.
            member_filter.read_filter(uow, mailing_list, draft_json)
        order = selection.order
        filter_json = selection.build_filter(uow, mailing_list)
        found_members = _search_members(
            console, uow, mailing_list, selection, filter_json, page_request
        )
        console.count_members_page(uow)
    except DomainError as error:
        form = form.add_error(error, SELECTION_PLACES)
        if draft.add_error(error):
            form = replace(form, errors={})
    refused = order if found_members.order is None and form.problem is None else None
    if refused is not None:
        selection = selection.with_sort(None)
    return console.render_page(
        "members.html",
        form,
        draft=draft,
        choices=choices,
        chips=_build_chips(selection, draft, choices, dict(segment_choices)),
        list=mailing_list,
        segments=segment_choices,
        fields=[(key, each.label) for key, each in own_fields.items()],
        columns=list_columns(uow, selection, filter_json, choices, found_members.page.rows),
        most_columns=MAX_COLUMNS,
        heads=build_heads(selection, found_members.order, found_members.total, refused),
        most_sorted=MAX_SORTED_MEMBERS,
        members=found_members.page.rows,
        describe_marks=describe_marks,
        next_cursor=found_members.page.next_cursor,
        total=found_members.total,
        selection=selection,
        filter_text=None if filter_json is None else format_json(filter_json),
        limit=MEMBERS_ON_PAGE,
        search={"filter": filter_json, "limit": MEMBERS_ON_PAGE} if filter_json else None,
        common_filters=common_filters,
        can_import=can_add,
    )


def _build_common_filters(
    mailing_list: MailingList, selection: MemberSelection
) -> list[tuple[str, str, bool]]:
    """Return each common filter's label and query, and whether the page shows its members."""
    text = selection.typed.get("filter", "")
    return [
        (label, urlencode({"filter": filter_text}), text == filter_text)
        for label, filter_text in filter_choices.list_ready_made_filters(mailing_list).items()
    ]


def _build_chips(
    selection: MemberSelection,
    draft: FilterDraft,
    choices: Mapping[str, Choice],
    segment_names: Mapping[str, str],
) -> list[tuple[str, str]]:
    """Return a label for each filter on the page, and a URL query that removes this filter.

    The function returns no label for the text in the search field, because the page already shows
    this text.
    """
    typed = selection.typed
    chips = []
    if "segment" in typed:
        label = f"Segment {segment_names.get(typed['segment'])}"
        chips.append((label, _build_query_without(typed, "segment")))
    if draft.group is not None:
        for label, other_conditions in filter_form.describe_conditions(draft.group, choices):
            if other_conditions is None:
                query = _build_query_without(typed, "filter")
            else:
                filter_text = orjson.dumps(other_conditions).decode()
                query = f"?{urlencode({**typed, 'filter': filter_text})}"
            chips.append((label, query))
    return chips


def _build_query_without(typed: Mapping[str, str], name: str) -> str:
    return f"?{urlencode({each: text for each, text in typed.items() if each != name})}"


@dataclass(frozen=True)
class _FoundMembers:
    """A page of members, and the number of all matching members if it is known.

    ``order``: the order of the page, or ``None`` for the newest members first.
    """

    page: PageOfRows[dict[str, Any]]
    total: int | None
    order: MemberOrder | None


def _search_members(
    console: ConsoleRequest,
    uow: UnitOfWork,
    mailing_list: MailingList,
    selection: MemberSelection,
    filter_json: dict[str, Any] | None,
    page_request: PageRequest,
) -> _FoundMembers:
    """Return the newest members first if too many members match to sort them.

    Raises ``filter.too_slow`` if the search exceeds its time limit.
    """
    if selection.order is not None:
        parsed_filter = member_filter.read_filter(uow, mailing_list, filter_json or ALL_ACTIVE)
        result = sorting.read_sorted_page(
            uow, mailing_list.id, parsed_filter, selection.order, page_request
        )
        if result is not None:
            total = result.total
            if total is None and parsed_filter.is_all_active:
                total = subscriber_counts.count_subscribers(uow, [mailing_list.id])[mailing_list.id]
            return _FoundMembers(result.page, total, selection.order)
        page_request = replace(page_request, cursor=None)
    status = selection.status or Status.ACTIVE
    if selection.is_plain and status in [*Status]:
        filters = MemberFilters(Status(status))
        # The connection isn't needed, because ``read_member_page`` uses another one.
        uow.roll_back()
        member_page = member_pages.read_member_page(
            console.state.resources,
            console.caller,
            mailing_list.id,
            filters,
            page_request,
        )
        return _FoundMembers(member_page.page, member_page.total, None)
    parsed_filter = member_filter.read_filter(uow, mailing_list, filter_json)
    matching = searching.search_members(uow, mailing_list.id, parsed_filter, page_request)
    return _FoundMembers(matching.page, matching.total, None)


@router.get("/new")
def show_new_member(
    console: EditPage, uow: Transaction, list_id: ListId, form: EmptyForm
) -> Response:
    mailing_list = console.get_own_list(uow, list_id)
    notice = find_plan_notice(
        uow, console.account_id, PlanQuota.MEMBERS, paid_plan_text=ADDING_MEMBERS_TEXT
    )
    return console.render_page(
        "new_member.html", form, list=mailing_list, tiers=[*TIERS.items()], refusal=notice
    )


@router.post("/new")
@threaded_by_list
@shows_errors_on(show_new_member, _ADDRESS_PLACES)
def add_member(console: EditForm, uow: Transaction, list_id: ListId) -> Response:
    """Add a member to a list, or change the member who already has the submitted e-mail address."""
    form = console.form
    email = email_addresses.normalise_address(form.get("email", ""))
    named = {"name": read_text(form, "name"), "type": form.get("type", "")}
    body = parse_body(MemberUpsert, {key: value for key, value in named.items() if value})
    mailing_list = console.get_own_list(uow, list_id)
    member = members.upsert_member(uow, mailing_list, email, body.edit(), build_actor(console))
    return console.redirect(get_member_path(list_id, member.user_id), f"{email} is on the list.")
