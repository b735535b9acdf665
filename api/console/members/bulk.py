"""Bulk actions on members: begun with the number of members in view, followed, and undone."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import partial

from fastapi.responses import Response

from api.console.assets import CONSOLE_PATH
from api.console.console_display import TIERS
from api.console.members.filter_form import read_filter
from api.console.members.forms import (
    ALL_ACTIVE,
    NOBODY,
    SELECTION_PLACES,
    MemberSelection,
    SelectionOf,
    as_json,
    shown_count,
)
from api.console.navigation import get_list_path
from api.console.requests import Console, ConsoleForm, ConsoleRequest, build_router
from api.console.typed_forms import TypedForm
from api.limits.bulkheads import RECORDS
from api.limits.shares import SEARCHES_BY_CALLER
from api.paging import Cursor
from api.record_ids import ListId, PathId
from core.errors import DomainError
from core.errors.mailing import BULK_NOT_FOUND, BULK_VALUE
from core.errors.requests import invalid_field
from core.queues import Queue
from models import BulkAction, BulkActionKind, Job, JobStatus
from services.jobs import records
from services.paging import PageRequest
from services.subscriptions import tags
from services.subscriptions.bulk_actions import actions
from services.subscriptions.bulk_actions.actions import BulkOrder
from services.subscriptions.bulk_actions.undo import BULK_UNDO
from services.subscriptions.filters import member_filter
from storage.unit_of_work import UnitOfWork

router = build_router(f"{CONSOLE_PATH}/lists/{{list_id}}/bulk-actions")

ACTS_ON_PAGE = 50
TAGS_TO_CHOOSE = 200
# The inputs with the values of actions; the other actions have none.
_VALUES: Mapping[str, str] = {
    BulkActionKind.TAG: "tag_name",
    BulkActionKind.UNTAG: "tag_name",
    BulkActionKind.SET_TYPE: "tier",
}


# The choices of the form, with their hints.
ACTIONS: Mapping[str, tuple[str, str]] = {
    BulkActionKind.TAG: ("Give them a tag", "The tag is made if the list has none of that name."),
    BulkActionKind.UNTAG: ("Take a tag off them", ""),
    BulkActionKind.SET_TYPE: ("Move them to a tier", "The end of a tier that has passed goes."),
    BulkActionKind.EMAIL_OFF: (
        "Switch their mail off",
        "They stay members. An undo switches it on.",
    ),
    BulkActionKind.REMOVE: (
        "Remove them from the list",
        "They get nothing. An undo brings them back.",
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
class _Shown:
    """A bulk action as the pages show it.

    Attributes:
        undo_until: the moment until which it can be undone, if it can.
    """

    bulk: BulkAction
    words: str
    undo_until: datetime | None
    state: BulkState


@router.get("")
def show_acts(console: Console, list_id: ListId, cursor: Cursor = None) -> Response:
    with console.unit_of_work() as uow:
        mailing_list = console.get_own_list(uow, list_id)
        wanted = PageRequest(ACTS_ON_PAGE, cursor=cursor)
        found = actions.list_bulk_actions(uow, console.caller, wanted, list_id=mailing_list.id)
        bulks = _shown(uow, found.rows)
    return console.render_page(
        "bulk_actions.html", list=mailing_list, bulks=bulks, next_cursor=found.next_cursor
    )


@router.get("/new")
async def show_new_act(
    console: Console, list_id: ListId, selection: SelectionOf, count: str = ""
) -> Response:
    form = TypedForm({"action": BulkActionKind.TAG})
    work = partial(_new_act_page, console, list_id, selection, form, count)
    return await SEARCHES_BY_CALLER.run(console.user_id, work)


@router.post("/new")
async def begin_act(console: ConsoleForm, list_id: ListId) -> Response:
    """Begin the bulk action of the form, and redirect to the page that follows it."""
    typed = console.form.get("action", "")
    try:
        if typed not in [*BulkActionKind]:
            raise invalid_field("body.action", "choose what to do")
        value = console.form.get(_VALUES[typed], "") if typed in _VALUES else None
        order = actions.check_order(BulkOrder(BulkActionKind(typed), value))
        # Work that would wait too long is refused before anything of it is stored.
        console.state.queue_ages.check(Queue.BULK, waits=False)
        bulk_id = await RECORDS.run(_begin, console, list_id, order)
    except DomainError as error:
        places = {BULK_VALUE.code: _VALUES.get(typed, "action")}
        form = await RECORDS.run(console.add_error, error, places)
        selection = MemberSelection({"filter": console.form.get("filter", "")})
        work = partial(_new_act_page, console, list_id, selection, form)
        return await SEARCHES_BY_CALLER.run(console.user_id, work)
    return console.redirect_with_notice(
        f"{get_list_path(list_id)}/bulk-actions/{bulk_id}", "The bulk action has started."
    )


def _begin(console: ConsoleRequest, list_id: int, order: BulkOrder) -> int | None:
    with console.unit_of_work() as uow:
        mailing_list = console.get_own_list(uow, list_id)
        written = read_filter(console.form.get("filter", "")) or ALL_ACTIVE
        job = actions.begin_bulk_action(
            uow,
            mailing_list,
            member_filter.keep(uow, mailing_list, written),
            order,
            caller=console.caller,
        )
        return job.subject_id


def _new_act_page(
    console: ConsoleRequest,
    list_id: int,
    selection: MemberSelection,
    form: TypedForm,
    asked: str = "",
) -> Response:
    counted = NOBODY
    with console.unit_of_work() as uow:
        mailing_list = console.get_own_list(uow, list_id)
        try:
            written = selection.written(uow, mailing_list) or ALL_ACTIVE
            wanted = member_filter.read(uow, mailing_list, written)
        except DomainError as error:
            form, written, wanted = form.add_error(error, SELECTION_PLACES), ALL_ACTIVE, None
        values = {
            "list": mailing_list,
            "tags": tags.list_tags(uow, mailing_list.id, PageRequest(TAGS_TO_CHOOSE)).rows,
        }
    if wanted is not None:
        counted = shown_count(console.state.resources, mailing_list, wanted, asked, selection.typed)
    return console.render_form(
        "new_bulk_action.html",
        form,
        counted_now=counted,
        written=written,
        written_text=as_json(written),
        actions=[(value, *words) for value, words in ACTIONS.items()],
        tiers=[*TIERS.items()],
        **values,
    )


@router.get("/{bulk_id}")
def show_act(console: Console, list_id: ListId, bulk_id: PathId) -> Response:
    with console.unit_of_work() as uow:
        mailing_list = console.get_own_list(uow, list_id)
        bulk = _owned(uow, console, mailing_list.id, bulk_id)
        [written] = member_filter.shown(uow, mailing_list, bulk.filter)
        [shown] = _shown(uow, [bulk])
        return console.render_page(
            "bulk_action.html",
            list=mailing_list,
            shown=shown,
            job=actions.find_job(uow, bulk),
            written_text=as_json(written),
        )


@router.post("/{bulk_id}/undo")
def undo_act(console: ConsoleForm, list_id: ListId, bulk_id: PathId) -> Response:
    """Begin the undo, or continue one that failed."""
    with console.unit_of_work() as uow:
        mailing_list = console.get_own_list(uow, list_id)
        _owned(uow, console, mailing_list.id, bulk_id)
        job_id = BULK_UNDO.start(uow, console.caller, bulk_id)
    notice = "It was undone before." if job_id is None else "The undo has started."
    return console.redirect_with_notice(f"{get_list_path(list_id)}/bulk-actions/{bulk_id}", notice)


@router.post("/{bulk_id}/cancel")
def cancel_act(console: ConsoleForm, list_id: ListId, bulk_id: PathId) -> Response:
    """Cancel the bulk action: its changes so far stay, and can be undone."""
    with console.unit_of_work() as uow:
        mailing_list = console.get_own_list(uow, list_id)
        job = actions.find_job(uow, _owned(uow, console, mailing_list.id, bulk_id))
        ended = 0 if job is None else records.cancel_own_job(uow, console.caller, job.id)
    notice = "The bulk action is cancelled." if ended else "The bulk action had ended before."
    return console.redirect_with_notice(f"{get_list_path(list_id)}/bulk-actions/{bulk_id}", notice)


def _owned(uow: UnitOfWork, console: ConsoleRequest, list_id: int, bulk_id: int) -> BulkAction:
    """Return the caller's bulk action on this list; raises ``bulk.not_found``."""
    bulk = BULK_UNDO.find_row(uow, console.caller, bulk_id)
    if bulk.list_id != list_id:
        raise BULK_NOT_FOUND()
    return bulk


def _shown(uow: UnitOfWork, bulks: list[BulkAction]) -> list[_Shown]:
    names = tags.find_tag_names(uow, (each.tag_id for each in bulks if each.tag_id))
    shown = []
    for bulk in bulks:
        undo_job = uow.session.get(Job, bulk.undo_job_id) if bulk.undo_job_id else None
        if undo_job is not None:
            # A job and its effects end in one transaction: whoever has seen the job's end, and
            # reads the record after it, sees all of them.
            uow.session.refresh(bulk)
        words = words_of(bulk, names)
        shown.append(_Shown(bulk, words, BULK_UNDO.available_until(bulk), _state(bulk, undo_job)))
    return shown


def words_of(bulk: BulkAction, names: Mapping[int, str]) -> str:
    """Say what the bulk action does; ``names``: of tags by their ids."""
    tag = names.get(bulk.tag_id or 0)
    of_tag = f"the tag “{tag}”" if tag is not None else "a tag that is gone"
    return {
        BulkActionKind.TAG: f"Give {of_tag}",
        BulkActionKind.UNTAG: f"Take off {of_tag}",
        BulkActionKind.SET_TYPE: f"Move to {bulk.type}",
        BulkActionKind.EMAIL_OFF: "Switch mail off",
        BulkActionKind.REMOVE: "Remove from the list",
    }[BulkActionKind(bulk.action)]


def _state(bulk: BulkAction, undo_job: Job | None) -> BulkState:
    if bulk.undone_at is not None:
        return BulkState.UNDONE
    if undo_job is not None:
        return BulkState.UNDO_FAILED if undo_job.finished_at is not None else BulkState.BEING_UNDONE
    if bulk.status == JobStatus.RUNNING:
        return BulkState.RUNNING
    return BulkState.DONE if bulk.status == JobStatus.SUCCEEDED else BulkState.ENDED_EARLY
