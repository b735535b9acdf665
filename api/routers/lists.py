from datetime import date
from typing import Annotated

from fastapi import APIRouter, Query

from api.access.requirements import ListEditor, ListReader
from api.bodies.json_route import JsonRoute
from api.limits.bulkheads import RECORDS
from api.limits.shares import ACTS_BY_LIST
from api.list_answers import LIST_RULES, list_response, list_responses
from api.openapi import refuses
from api.parameters import ListId, Paging, StateOf
from api.schemas.envelope import Envelope, Page, envelope, page
from api.schemas.lists import Channel, ListChanges, ListFigures, NewList
from core.refusals import mailing as refusals
from core.refusals.access import QUOTA_EXCEEDED
from core.refusals.requests import CURSOR_INVALID
from services.mailing import lists, member_figures
from services.mailing.member_figures import FiguresBy
from services.mailing.subscriptions import trace_ids

router = APIRouter(tags=["Lists"], route_class=JsonRoute)


@router.post("/lists", responses=refuses(QUOTA_EXCEEDED, *LIST_RULES))
@RECORDS.threaded
def create_list(state: StateOf, caller: ListEditor, body: NewList) -> Envelope[Channel]:
    """Create a list that the caller owns."""
    with state.resources.unit_of_work() as uow:
        made = lists.create_own(
            uow,
            state.resources.settings,
            caller,
            title=body.title,
            slug=body.slug,
            fields=body.sent(),
            providers=state.challenges.configured,
        )
        return envelope(list_response(uow, state, made))


@router.get("/lists", responses=refuses(CURSOR_INVALID))
@RECORDS.threaded
def list_lists(state: StateOf, caller: ListReader, paging: Paging) -> Envelope[Page[Channel]]:
    """The caller's lists without archived ones, newest first."""
    with state.resources.unit_of_work() as uow:
        found = lists.list_of(uow, caller.user_id, paging)
        return envelope(page(list_responses(uow, state, found.rows), paging, found))


@router.get(
    "/lists/{list_id}", responses=refuses(refusals.LIST_NAME_INVALID, refusals.LIST_NOT_FOUND)
)
@RECORDS.threaded
def read_list(state: StateOf, caller: ListReader, list_id: str) -> Envelope[Channel]:
    """A list of any owner, by its id or slug."""
    with state.resources.unit_of_work() as uow:
        return envelope(list_response(uow, state, lists.get_named(uow, list_id)))


@router.get(
    "/lists/{list_id}/stats",
    responses=refuses(refusals.LIST_NOT_FOUND, refusals.LIST_NOT_OWNER, refusals.FIGURES_RANGE),
)
@RECORDS.threaded
def read_list_stats(
    state: StateOf,
    caller: ListReader,
    list_id: ListId,
    by: FiguresBy = FiguresBy.DAY,
    first: Annotated[
        date | None, Query(alias="from", description="The first day; 29 days before the last one")
    ] = None,
    last: Annotated[date | None, Query(alias="to", description="The last day; today")] = None,
) -> Envelope[ListFigures]:
    """How many members joined and left a list, by day, by source or by tier.

    An import joins members, and its undo lets them leave; a removal, an erasure and a transfer to
    another list count as left. A pending person has not joined. By tier, a member who gets another
    tier left the one and joined the other. The net of all days is the number of active members.
    """
    days = member_figures.day_range(first, last)
    with state.resources.unit_of_work() as uow:
        mailing_list = lists.owned(uow, caller, list_id)
        found = member_figures.read(uow, mailing_list.id, days, by)
    return envelope(ListFigures.of(by, days, found))


@router.patch(
    "/lists/{list_id}",
    responses=refuses(
        refusals.LIST_NOT_FOUND, refusals.LIST_NOT_OWNER, refusals.LIST_BUSY, *LIST_RULES
    ),
)
@ACTS_BY_LIST.threaded("list_id")
def change_list(
    state: StateOf, caller: ListEditor, list_id: ListId, body: ListChanges
) -> Envelope[Channel]:
    """Change the fields that the body names; the others stay."""
    with state.resources.unit_of_work() as uow:
        mailing_list = lists.owned(uow, caller, list_id)
        lists.change(uow, mailing_list, body.sent(), state.challenges.configured)
        uow.session.refresh(mailing_list)
        return envelope(list_response(uow, state, mailing_list))


@router.delete(
    "/lists/{list_id}/traces",
    responses=refuses(refusals.LIST_NOT_FOUND, refusals.LIST_NOT_OWNER, refusals.LIST_BUSY),
)
@ACTS_BY_LIST.threaded("list_id")
def revoke_trace_ids(state: StateOf, caller: ListEditor, list_id: ListId) -> Envelope[int]:
    """Revoke the trace ids of all deliveries so far, such as after a roster got into wrong hands.

    In mails that were sent they still leave the list and stop its mail, and open nothing else.
    """
    with state.resources.unit_of_work() as uow:
        trace_ids.revoke(uow, lists.owned(uow, caller, list_id))
    return envelope(1)


@router.delete(
    "/lists/{list_id}",
    responses=refuses(refusals.LIST_NAME_INVALID, refusals.LIST_NOT_FOUND, refusals.LIST_NOT_OWNER),
)
@ACTS_BY_LIST.threaded("list_id")
def archive_list(state: StateOf, caller: ListEditor, list_id: ListId) -> Envelope[int]:
    """Archive a list: all calls treat it as gone, but people who got its mail can still leave."""
    with state.resources.unit_of_work() as uow:
        return envelope(lists.archive(uow, lists.owned(uow, caller, list_id)))
