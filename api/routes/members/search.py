"""The API endpoints that list and search the members of a list, for the owner of the list."""

from functools import partial
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Response
from pydantic import BeforeValidator

from api.auth.member_reads import count_members_page, limit_members_page
from api.auth.requirements import MemberReader
from api.bodies.url_encoded_forms import BOOLEAN_WORDS
from api.limits.bulkheads import RECORDS
from api.limits.keyed_bulkheads import SEARCHES_BY_CALLER
from api.openapi.declarations import LIST_ERRORS, SELECTION_ERRORS, error_responses
from api.paging import Paging
from api.record_ids import ListId, PathId
from api.route_classes import JsonRoute
from api.schemas import subscriptions as schemas
from api.schemas.envelope import Envelope, build_plain_response
from api.schemas.segments import MemberSearch
from api.state import State, StateOf
from core.errors import mailing, requests
from models import SubscriptionStatus, Tier
from services.access.caller import Caller
from services.paging import PageOfRows, PageRequest
from services.subscriptions import lists, segments
from services.subscriptions.filters import member_filter, searching
from services.subscriptions.members import member_pages
from services.subscriptions.members.member_pages import MemberFilters

router = APIRouter(tags=["Members"], route_class=JsonRoute)


_SEARCH_ERRORS = (
    *LIST_ERRORS,
    requests.CURSOR_INVALID,
    mailing.FILTER_INVALID,
    mailing.FILTER_TOO_SLOW,
)


def _parse_premium(value: object) -> bool | Tier:
    words: dict[str, bool | Tier] = {**BOOLEAN_WORDS, **{tier.value: tier for tier in Tier}}
    try:
        return words[str(value).lower()]
    except KeyError:
        raise ValueError(f"must be one of {', '.join(words)}") from None


Premium = Annotated[
    bool | Tier,
    BeforeValidator(_parse_premium, json_schema_input_type=str),
    Query(
        description="Use 1 for members on a paid tier, 0 for members on the free tier, or the "
        "name of a tier: free, silver or gold."
    ),
]


@router.get(
    "/lists/{list_id}/subscriptions",
    summary="List all members",
    response_model=Envelope[schemas.MembersPage],
    responses=error_responses(*_SEARCH_ERRORS, mailing.FILTER_ALONE, *SELECTION_ERRORS),
)
async def list_members(
    state: StateOf,
    caller: MemberReader,
    list_id: ListId,
    paging: Paging,
    email: Annotated[
        str | None,
        Query(description="An e-mail address, or the beginning of an address followed by *"),
    ] = None,
    premium: Premium | None = None,
    status: SubscriptionStatus | None = None,
    filter: Annotated[  # noqa: A002 - the name that callers know
        str | None,
        Query(
            description="A MemberFilter as JSON, which can't be combined with offset, email or "
            "premium"
        ),
    ] = None,
    segment_id: Annotated[
        PathId | None,
        Query(description="The id of a segment of the list, which can't be combined with a filter"),
    ] = None,
) -> Response:
    """List the members of a list that you own, newest first.

    By default, only active members are returned. Pass `status` or a filter to select other
    statuses. With a filter or a segment, a page can contain fewer members than `limit`, or none.
    Continue with `next_cursor` until `next_cursor` is null. A session receives at most 200 members
    per page. If a session reads more than 100 pages per hour, Pressroom records the security event
    `members.read`.
    """
    paging = limit_members_page(caller, paging)
    if filter is None and segment_id is None:
        filters = MemberFilters(status or SubscriptionStatus.ACTIVE, email, premium)

        def read_page() -> Response:
            result = member_pages.read_member_page(
                state.resources,
                caller,
                list_id,
                filters,
                paging,
            )
            count_members_page(state, caller)
            return _build_members_response(paging, result.page, result.total)

        return await RECORDS.run(read_page)
    if email is not None or premium is not None or paging.offset:
        raise mailing.FILTER_ALONE()
    if filter is not None and segment_id is not None:
        raise mailing.SELECTION_UNCLEAR()
    try:
        filter_document = None if filter is None else orjson.loads(filter)
    except orjson.JSONDecodeError:
        raise mailing.FILTER_NOT_JSON() from None
    work = partial(
        _search_members,
        state,
        caller,
        list_id,
        filter_document,
        status,
        paging,
        segment_id=segment_id,
    )
    return await SEARCHES_BY_CALLER.run(caller.account_id, work)


@router.post(
    "/lists/{list_id}/members/search",
    summary="Search members",
    response_model=Envelope[schemas.MembersPage],
    responses=error_responses(*_SEARCH_ERRORS),
)
async def search_members(
    state: StateOf, caller: MemberReader, list_id: ListId, body: MemberSearch
) -> Response:
    """Search the members of a list with a filter, newest first.

    A page can contain fewer members than `limit`, or none. Continue with `next_cursor` until
    `next_cursor` is null.
    """
    paging = limit_members_page(caller, PageRequest(body.limit, cursor=body.cursor))
    work = partial(_search_members, state, caller, list_id, body.filter, body.status, paging)
    return await SEARCHES_BY_CALLER.run(caller.account_id, work)


def _search_members(
    state: State,
    caller: Caller,
    list_id: int,
    filter_document: object,
    status: SubscriptionStatus | None,
    paging: PageRequest,
    *,
    segment_id: int | None = None,
) -> Response:
    with state.resources.unit_of_work() as uow:
        mailing_list = lists.get_own_list(uow, caller, list_id)
        if segment_id is None:
            filter_tree = member_filter.read_filter(uow, mailing_list, filter_document)
        else:
            filter_tree = segments.read_filter(uow, mailing_list, segment_id)
        result = searching.search_members(uow, mailing_list.id, filter_tree, paging, status)
    count_members_page(state, caller)
    return _build_members_response(paging, result.page, result.total)


def _build_members_response(
    paging: PageRequest, page: PageOfRows[dict[str, Any]], total: int | None
) -> Response:
    pagination = schemas.MembersPagination.of(paging, page, total=total)
    items = [schemas.build_member_item(row) for row in page.rows]
    return build_plain_response({"pagination": pagination.model_dump(), "items": items})
