"""Pages on which an owner starts, watches and undoes bulk actions on members."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from urllib.parse import urlencode

import orjson
from fastapi.responses import Response

from api.auth.page_sessions import LoginNeeded
from api.console.assets import CONSOLE_PATH
from api.console.console_display import TIERS
from api.console.members.filter_form import parse_filter
from api.console.members.forms import (
    ALL_ACTIVE,
    MAX_INPUT_CHARACTERS,
    NOBODY,
    SELECTION_PLACES,
    MemberSelection,
    Selection,
    count_selection,
    format_json,
    iterate_fields,
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
    threaded_as_search,
)
from api.console.typed_forms import TypedForm
from api.paging import Cursor
from api.record_ids import ListId, PathId
from api.state import Transaction
from core import clock
from core.errors import DomainError
from core.errors.access import AUTH_LOGIN_AGAIN
from core.errors.mailing import BULK_NOT_FOUND, BULK_VALUE
from core.errors.requests import invalid_field
from core.queues import Queue
from core.settings.notations import PlanQuota
from models import BulkAction, BulkActionKind, Job, JobStatus, Segment, SubscriptionStatus
from services.jobs import records
from services.paging import PageRequest
from services.subscriptions import tags
from services.subscriptions.bulk_actions import actions
from services.subscriptions.bulk_actions.actions import BulkOrder
from services.subscriptions.bulk_actions.undo import BULK_UNDO
from services.subscriptions.filters import member_filter
from services.subscriptions.watches import watches
from storage.unit_of_work import UnitOfWork

router = build_router(f"{CONSOLE_PATH}/lists/{{list_id}}/bulk-actions")

ACTIONS_ON_PAGE = 50
TAGS_TO_CHOOSE = 200
# Maps a kind of bulk action to the form input for its value, such as a tag.
_VALUE_INPUTS: Mapping[str, str] = {
    BulkActionKind.TAG: "tag_name",
    BulkActionKind.UNTAG: "tag_name",
    BulkActionKind.SET_TYPE: "tier",
}


# The label and the hint for each kind of bulk action.
ACTIONS: Mapping[str, tuple[str, str]] = {
    BulkActionKind.TAG: ("Add a tag", "If the tag doesn’t exist yet, it is created."),
    BulkActionKind.UNTAG: ("Remove a tag", ""),
    BulkActionKind.SET_TYPE: ("Change the tier", "An expired end date is removed."),
    BulkActionKind.EMAIL_OFF: (
        "Turn mail off",
        "The members stay on the list. An undo turns their mail on again.",
    ),
    BulkActionKind.REMOVE: (
        "Remove from the list",
        "The members get no more mail. An undo adds them again.",
    ),
}


class BulkState(StrEnum):
    RUNNING = "running"
    DONE = "done"
    ENDED_EARLY = "ended_early"
    BEING_UNDONE = "being_undone"
    UNDO_FAILED = "undo_failed"
    UNDONE = "undone"


@dataclass(frozen=True)
class _BulkActionView:
    """A bulk action on members, formatted for a page.

    ``undo_until``: the time until which the bulk action can be undone, or ``None`` if it can't be
    undone.
    """

    bulk: BulkAction
    words: str
    undo_until: datetime | None
    state: BulkState


@router.get("")
def show_bulk_actions(
    console: FiguresPage, uow: Transaction, list_id: ListId, cursor: Cursor = None
) -> Response:
    mailing_list = console.get_own_list(uow, list_id)
    page_request = PageRequest(ACTIONS_ON_PAGE, cursor=cursor)
    page = actions.list_bulk_actions(uow, console.caller, page_request, list_id=mailing_list.id)
    bulks = _build_views(uow, page.rows)
    return console.render_page(
        "bulk_actions.html", list=mailing_list, bulks=bulks, next_cursor=page.next_cursor
    )


@router.get("/new")
@threaded_as_search
def show_new_bulk_action(
    console: EditPage,
    uow: Transaction,
    list_id: ListId,
    selection: Selection,
    form: EmptyForm,
    count: str = "",
    action: str = "",
) -> Response:
    """Show the form with an action preselected, such as the button that the user pressed."""
    form = form.fill({"action": action if action in ACTIONS else BulkActionKind.TAG})
    return _render_new_action(console, uow, list_id, selection, form, count)


@router.post("/new")
async def start_bulk_action(console: EditForm, list_id: ListId) -> Response:
    action = console.form.get("action", "")
    try:
        if action not in [*BulkActionKind]:
            raise invalid_field("body.action", "choose an action")
        value = console.form.get(_VALUE_INPUTS[action], "") if action in _VALUE_INPUTS else None
        order = actions.check_order(BulkOrder(BulkActionKind(action), value))
        # If the bulk queue is overloaded, reject the request before storing anything.
        console.state.queue_ages.check(Queue.BULK, waits=False)
        return await console.state.in_unit_of_work(_begin_action, console, list_id, order)
    except DomainError as error:
        if error.code == AUTH_LOGIN_AGAIN.code:
            raise LoginNeeded(console.member) from None
        return await _render_refused_action(
            console=console,
            uow=console.unit_of_work(),
            list_id=list_id,
            action=action,
            error=error,
        )


def _begin_action(
    uow: UnitOfWork, console: ConsoleRequest, list_id: int, order: BulkOrder
) -> Response:
    """Begin a bulk action. Before it tags members of watched segments, the owner must confirm."""
    mailing_list = console.get_own_list(uow, list_id)
    filter_json = parse_filter(console.form.get("filter", "")) or ALL_ACTIVE
    watched_segments = _list_watched_segments(uow, list_id, order)
    if watched_segments and CONFIRMED not in console.form:
        return console.render_page(
            "confirm_tag.html",
            list=mailing_list,
            # "Cancel" leads back to the form with the same members.
            path=f"{get_list_path(list_id)}/bulk-actions/new?{console.request.url.query}",
            tag_name=order.value,
            watched_segments=watched_segments,
            filter_json=filter_json,
            values={
                "action": order.action,
                "tag_name": order.value,
                "filter": format_json(filter_json),
                CONFIRMED: "yes",
            },
        )
    job = actions.begin_bulk_action(
        uow,
        mailing_list,
        member_filter.prepare_stored_filter(uow, mailing_list, filter_json),
        order,
        caller=console.caller,
    )
    return console.redirect(f"{get_list_path(list_id)}/bulk-actions/{job.subject_id}")


def _list_watched_segments(uow: UnitOfWork, list_id: int, order: BulkOrder) -> Sequence[Segment]:
    """Return the watched segments whose filters use the tag that the order adds."""
    if order.action is not BulkActionKind.TAG or order.value is None:
        return ()
    tag_ids = tags.find_tag_ids(uow, list_id, [order.value], create=False)
    tag_id = tag_ids.get(order.value)
    return () if tag_id is None else watches.list_watched_users_of_tag(uow, list_id, tag_id)


@threaded_as_search
def _render_refused_action(
    console: ConsoleRequest, uow: UnitOfWork, list_id: int, action: str, error: DomainError
) -> Response:
    form = console.add_error(error, {BULK_VALUE.code: _VALUE_INPUTS.get(action, "action")})
    selection = MemberSelection({"filter": console.form.get("filter", "")})
    return _render_new_action(console, uow, list_id, selection, form)


def _render_new_action(
    console: ConsoleRequest,
    uow: UnitOfWork,
    list_id: int,
    selection: MemberSelection,
    form: TypedForm,
    count: str = "",
) -> Response:
    member_count = NOBODY
    mailing_list = console.get_own_list(uow, list_id)
    own_tags = tags.list_tags(uow, mailing_list.id, PageRequest(TAGS_TO_CHOOSE)).rows
    notice = find_plan_notice(
        uow, console.account_id, PlanQuota.UNFINISHED_JOBS, PlanQuota.STORAGE_MB
    )
    try:
        filter_json = selection.build_filter(uow, mailing_list) or ALL_ACTIVE
        parsed_filter = member_filter.read_filter(uow, mailing_list, filter_json)
    except DomainError as error:
        form = form.add_error(error, SELECTION_PLACES)
        filter_json = ALL_ACTIVE
    else:
        uow.roll_back()
        member_count = count_selection(
            console.state.resources, mailing_list, parsed_filter, count, selection.typed
        )
    return console.render_page(
        "new_bulk_action.html",
        form,
        list=mailing_list,
        tags=own_tags,
        refusal=notice,
        member_count=member_count,
        filter_json=filter_json,
        filter_text=format_json(filter_json),
        actions=[(value, *words) for value, words in ACTIONS.items()],
        tiers=[*TIERS.items()],
        # After a login, the browser returns to the URL to which the form was sent.
        query=selection.query,
    )


@router.get("/{bulk_id}")
def show_bulk_action(
    console: FiguresPage, uow: Transaction, list_id: ListId, bulk_id: PathId
) -> Response:
    mailing_list = console.get_own_list(uow, list_id)
    bulk = _get_bulk_action(uow, console, mailing_list.id, bulk_id)
    [filter_json] = member_filter.restore_names(uow, mailing_list, bulk.filter)
    [view] = _build_views(uow, [bulk])
    tag_name = tags.find_tag_names(uow, [bulk.tag_id or 0]).get(bulk.tag_id or 0)
    is_removal = bulk.action == BulkActionKind.REMOVE
    notice = None
    if is_removal and view.undo_until is not None:
        # The undo of a removal adds members again, which may exceed the limit of the plan.
        notice = find_plan_notice(uow, console.account_id, PlanQuota.MEMBERS)
    return console.render_page(
        "bulk_action.html",
        list=mailing_list,
        view=view,
        refusal=notice,
        job=actions.find_job(uow, bulk),
        filter_text=format_json(filter_json),
        members_query=_build_members_query(bulk, filter_json, tag_name),
    )


def _build_members_query(
    bulk: BulkAction, filter_json: dict[str, Any], tag_name: str | None
) -> str | None:
    """Return the query string that makes the members page show a bulk action's changed members.

    The result is ``None`` if no filter can select the changed members. For example, after a bulk
    action has removed a tag, no filter can select the members who had the tag before.
    """
    field, value = {
        BulkActionKind.TAG: ("tag", tag_name),
        BulkActionKind.UNTAG: ("tag", None),
        BulkActionKind.SET_TYPE: ("type", bulk.type),
        BulkActionKind.EMAIL_OFF: ("email_enabled", False),
        BulkActionKind.REMOVE: ("status", SubscriptionStatus.REMOVED),
    }[BulkActionKind(bulk.action)]
    # Omit the bulk action's filter if the filter tests the changed field, because such a filter may
    # no longer match the changed members.
    conditions = [] if field in iterate_fields(filter_json) else [filter_json]
    if value is not None:
        conditions.append({"field": field, "is": value})
    if not conditions:
        return None
    text = orjson.dumps({"all": conditions} if len(conditions) > 1 else conditions[0]).decode()
    return None if len(text) > MAX_INPUT_CHARACTERS else f"?{urlencode({'filter': text})}"


@router.post("/{bulk_id}/undo")
def undo_bulk_action(
    console: EditForm, uow: Transaction, list_id: ListId, bulk_id: PathId
) -> Response:
    """Start the undo of a bulk action, or resume an undo that failed."""
    mailing_list = console.get_own_list(uow, list_id)
    _get_bulk_action(uow, console, mailing_list.id, bulk_id)
    job_id = BULK_UNDO.start(uow, console.caller, bulk_id)
    # The page already shows the progress of an undo.
    notice = "The bulk action was already undone." if job_id is None else ""
    return console.redirect(f"{get_list_path(list_id)}/bulk-actions/{bulk_id}", notice)


@router.post("/{bulk_id}/cancel")
def cancel_bulk_action(
    console: EditForm, uow: Transaction, list_id: ListId, bulk_id: PathId
) -> Response:
    """Cancel a bulk action, but keep the changes that it has already made."""
    mailing_list = console.get_own_list(uow, list_id)
    job = actions.find_job(uow, _get_bulk_action(uow, console, mailing_list.id, bulk_id))
    cancelled_count = 0 if job is None else records.cancel_own_job(uow, console.caller, job.id)
    notice = (
        "The bulk action was cancelled."
        if cancelled_count
        else "The bulk action had already ended."
    )
    return console.redirect(f"{get_list_path(list_id)}/bulk-actions/{bulk_id}", notice)


def _get_bulk_action(
    uow: UnitOfWork, console: ConsoleRequest, list_id: int, bulk_id: int
) -> BulkAction:
    bulk = BULK_UNDO.find_row(uow, console.caller, bulk_id)
    if bulk.list_id != list_id:
        raise BULK_NOT_FOUND()
    return bulk


def _build_views(uow: UnitOfWork, bulks: list[BulkAction]) -> list[_BulkActionView]:
    names = tags.find_tag_names(uow, (each.tag_id for each in bulks if each.tag_id))
    views = []
    for bulk in bulks:
        undo_job = uow.session.get(Job, bulk.undo_job_id) if bulk.undo_job_id else None
        if undo_job is not None:
            # Read the bulk action again after reading its job, so that the last changes of a job
            # that just ended are included. The transaction that ends a job also contains the job's
            # last changes to the bulk action.
            uow.session.refresh(bulk)
        until = BULK_UNDO.available_until(bulk)
        undo_until = until if until is not None and until > clock.now() else None
        state = _get_state(bulk, undo_job)
        views.append(_BulkActionView(bulk, describe_bulk_action(bulk, names), undo_until, state))
    return views


def describe_bulk_action(bulk: BulkAction, names: Mapping[int, str]) -> str:
    """Describe a bulk action, as in "Turn mail off". ``names`` maps tag ids to tag names."""
    tag = names.get(bulk.tag_id or 0)
    tag_label = f"the tag “{tag}”" if tag is not None else "a deleted tag"
    return {
        BulkActionKind.TAG: f"Add {tag_label}",
        BulkActionKind.UNTAG: f"Remove {tag_label}",
        BulkActionKind.SET_TYPE: f"Change the tier to {bulk.type}",
        BulkActionKind.EMAIL_OFF: "Turn mail off",
        BulkActionKind.REMOVE: "Remove from the list",
    }[BulkActionKind(bulk.action)]


def _get_state(bulk: BulkAction, undo_job: Job | None) -> BulkState:
    if bulk.undone_at is not None:
        return BulkState.UNDONE
    if undo_job is not None:
        return BulkState.UNDO_FAILED if undo_job.finished_at is not None else BulkState.BEING_UNDONE
    if bulk.status == JobStatus.RUNNING:
        return BulkState.RUNNING
    return BulkState.DONE if bulk.status == JobStatus.SUCCEEDED else BulkState.ENDED_EARLY
