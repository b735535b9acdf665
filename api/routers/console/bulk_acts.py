"""Acts on many members: chosen with their number before them, watched, and undone."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from fastapi import APIRouter
from fastapi.responses import Response

from api.access.page_sessions import FormFields
from api.access.requirements import PUBLIC
from api.console.assets import CONSOLE_PATH
from api.console.navigation import list_path
from api.console.of_members.bulk_words import ACTIONS, ActState, act_state, act_words
from api.console.of_members.member_selections import (
    ALL_ACTIVE,
    PLACES,
    MemberSelection,
    SelectionOf,
    as_json,
)
from api.console.of_members.member_words import TIERS
from api.console.of_members.shown_counts import NOBODY, shown_count
from api.console.own_lists import own_list
from api.console.typed_forms import TypedForm
from api.console.visits import ConsoleVisit, FormVisit, Visit
from api.limits.bulkheads import RECORDS
from api.limits.shares import SEARCHES_BY_CALLER
from api.list_answers import list_response
from api.parameters import Cursor, ListId, PathId
from api.request_ids import current_request_id
from core.errors import DomainError
from core.lanes import Lane
from core.refusals.requests import invalid_field
from core.refusals.segments import BULK_NOT_FOUND, BULK_VALUE
from models import BulkAct, BulkAction, Job
from services.jobs import records
from services.mailing.attributes import tags
from services.mailing.bulk_acts import accepting, bulk_records
from services.mailing.bulk_acts.accepting import BulkOrder
from services.mailing.filters import member_filter
from services.mailing.segments import stored_filters
from services.paging import PageRequest
from storage.unit_of_work import UnitOfWork

# No operations of the API, so not in its document.
router = APIRouter(
    prefix=f"{CONSOLE_PATH}/lists/{{list_id}}/acts", dependencies=[PUBLIC], include_in_schema=False
)

ACTS_ON_PAGE = 50
TAGS_TO_CHOOSE = 200
# The input that holds the value of an act; others have none.
_VALUES: Mapping[str, str] = {
    BulkAction.TAG: "tag_name",
    BulkAction.UNTAG: "tag_name",
    BulkAction.SET_TYPE: "tier",
}


@dataclass(frozen=True)
class _Shown:
    """An act as the pages show it."""

    act: BulkAct
    words: str
    # Until when its undo is offered; ``None``: it is not.
    undo_until: datetime | None
    state: ActState


@router.get("")
@RECORDS.threaded
def show_acts(visit: Visit, list_id: ListId, cursor: Cursor = None) -> Response:
    """The acts on members of the list, newest first."""
    with visit.unit_of_work() as uow:
        mailing_list = own_list(uow, visit.caller, list_id)
        wanted = PageRequest(ACTS_ON_PAGE, cursor=cursor)
        found = bulk_records.list_of(uow, visit.caller, wanted, list_id=mailing_list.id)
        acts = _shown(uow, found.rows)
        shown = list_response(uow, visit.state, mailing_list)
        return visit.page(
            "acts.html", list=shown, acts=acts, next_cursor=found.next_cursor, cursor=cursor
        )


@router.get("/new")
async def show_new_act(
    visit: Visit, list_id: ListId, selection: SelectionOf, count: str = ""
) -> Response:
    """How many members were chosen, and what can be done to them."""
    form = TypedForm({"action": BulkAction.TAG})
    work = partial(_new_act_page, visit, list_id, selection, form, count)
    return await SEARCHES_BY_CALLER.run(visit.user_id, work)


@router.post("/new")
async def begin_act(visit: FormVisit, list_id: ListId) -> Response:
    """Begin the act that the form names, and lead to the page that watches it."""
    selection = MemberSelection({"filter": visit.form.get("filter", "")})
    try:
        order = _order_of(visit.form)
        # Work that would wait too long is refused before anything of it is stored.
        visit.state.lane_ages.check(Lane.BULK, waits=False)
        bulk_id = await RECORDS.run(_begin, visit, list_id, selection, order)
    except DomainError as error:
        places = {BULK_VALUE.code: _VALUES.get(visit.form.get("action", ""), "action")}
        form = await RECORDS.run(visit.refused, error, places)
        work = partial(_new_act_page, visit, list_id, selection, form)
        return await SEARCHES_BY_CALLER.run(visit.user_id, work)
    return visit.done(f"{list_path(list_id)}/acts/{bulk_id}", "The act has begun.")


def _order_of(form: FormFields) -> BulkOrder:
    """Raises ``body.invalid``, ``bulk.value``."""
    try:
        action = BulkAction(form.get("action", ""))
    except ValueError:
        raise invalid_field("body.action", "choose what to do") from None
    name = _VALUES.get(action)
    return accepting.check(BulkOrder(action, None if name is None else form.get(name, "")))


def _begin(visit: ConsoleVisit, list_id: int, selection: MemberSelection, order: BulkOrder) -> int:
    settings = visit.state.resources.settings
    with visit.unit_of_work() as uow:
        mailing_list = own_list(uow, visit.caller, list_id)
        written = selection.written(uow, mailing_list) or ALL_ACTIVE
        kept = stored_filters.keep(uow, mailing_list, written)
        request_id = current_request_id()
        job = accepting.begin(uow, settings, mailing_list, kept, order, request_id=request_id)
        assert job.subject_id is not None
        return job.subject_id


def _new_act_page(
    visit: ConsoleVisit, list_id: int, selection: MemberSelection, form: TypedForm, asked: str = ""
) -> Response:
    counted = NOBODY
    with visit.unit_of_work() as uow:
        mailing_list = own_list(uow, visit.caller, list_id)
        try:
            written = selection.written(uow, mailing_list) or ALL_ACTIVE
            wanted = member_filter.read(uow, mailing_list, written)
        except DomainError as error:
            form, written, wanted = form.refused(error, PLACES), ALL_ACTIVE, None
        values = {
            "list": list_response(uow, visit.state, mailing_list),
            "tags": tags.page(uow, mailing_list.id, PageRequest(TAGS_TO_CHOOSE)).rows,
        }
    if wanted is not None:
        typed = dict(selection.typed)
        counted = shown_count(visit.state.resources, mailing_list, wanted, asked, typed)
    return visit.form_page(
        "new_act.html",
        form,
        counted_now=counted,
        written=written,
        written_text=as_json(written),
        actions=[(value, *words) for value, words in ACTIONS.items()],
        tiers=[*TIERS.items()],
        **values,
    )


@router.get("/{bulk_id}")
@RECORDS.threaded
def show_act(visit: Visit, list_id: ListId, bulk_id: PathId) -> Response:
    """One act: how far it is, what it changed, and its undo."""
    with visit.unit_of_work() as uow:
        mailing_list = own_list(uow, visit.caller, list_id)
        act = _act(uow, visit, mailing_list.id, bulk_id)
        [written] = stored_filters.shown(uow, mailing_list, act.filter)
        [shown] = _shown(uow, [act])
        return visit.page(
            "act.html",
            list=list_response(uow, visit.state, mailing_list),
            shown=shown,
            job=bulk_records.job_of(uow, act),
            written_text=as_json(written),
        )


@router.post("/{bulk_id}/undo")
@RECORDS.threaded
def undo_act(visit: FormVisit, list_id: ListId, bulk_id: PathId) -> Response:
    """Begin the undo, or go on with one that failed."""
    with visit.unit_of_work() as uow:
        mailing_list = own_list(uow, visit.caller, list_id)
        _act(uow, visit, mailing_list.id, bulk_id)
        job_id = accepting.undo(uow, visit.caller, bulk_id, current_request_id())
    notice = "It was undone before." if job_id is None else "The undo has begun."
    return visit.done(f"{list_path(list_id)}/acts/{bulk_id}", notice)


@router.post("/{bulk_id}/cancel")
@RECORDS.threaded
def cancel_act(visit: FormVisit, list_id: ListId, bulk_id: PathId) -> Response:
    """End the act where it is: what it changed so far stays, and can be undone."""
    with visit.unit_of_work() as uow:
        mailing_list = own_list(uow, visit.caller, list_id)
        job = bulk_records.job_of(uow, _act(uow, visit, mailing_list.id, bulk_id))
        ended = 0 if job is None else records.cancel(uow, visit.caller, job.id)
    notice = "The act ends." if ended else "The act had ended before."
    return visit.done(f"{list_path(list_id)}/acts/{bulk_id}", notice)


def _act(uow: UnitOfWork, visit: ConsoleVisit, list_id: int, bulk_id: int) -> BulkAct:
    """The caller's act on this list; raises ``bulk.not_found``."""
    act = bulk_records.get(uow, visit.caller, bulk_id)
    if act.list_id != list_id:
        raise BULK_NOT_FOUND()
    return act


def _shown(uow: UnitOfWork, acts: list[BulkAct]) -> list[_Shown]:
    names = tags.names_of(uow, (each.tag_id for each in acts if each.tag_id))
    return [_shown_act(uow, each, names.get(each.tag_id or 0)) for each in acts]


def _shown_act(uow: UnitOfWork, act: BulkAct, tag: str | None) -> _Shown:
    undo_job = uow.session.get(Job, act.undo_job_id) if act.undo_job_id else None
    if undo_job is not None:
        # A job and what it did end in one transaction: who has seen the job's end, and reads the
        # record after it, sees all of it.
        uow.session.refresh(act)
    undo_until = bulk_records.undo_until(act)
    return _Shown(act, act_words(act, tag), undo_until, act_state(act, undo_job))
