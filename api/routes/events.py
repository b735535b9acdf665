"""The API endpoint for the feed, which lists an owner's events in order."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from api.auth.member_reads import count_members_page, limit_members_page
from api.auth.requirements import EVENT_TYPE_SCOPES
from api.openapi.declarations import error_responses
from api.paging import Limit
from api.record_ids import PathId
from api.route_classes import JsonRoute
from api.schemas.envelope import Envelope, build_plain_response
from api.schemas.events import FeedEventsPage
from api.state import StateOf
from core.errors.access import AUTH_INSUFFICIENT_SCOPE, AUTH_RESTRICTED_CREDENTIAL
from core.errors.mailing import LIST_NOT_FOUND
from core.errors.requests import CURSOR_INVALID
from services.access.caller import Caller
from services.access.event_types import list_visible_types
from services.feed import reading
from services.feed.catalogue import FeedEventType
from services.feed.reading import render_events
from services.paging import PageRequest

router = APIRouter(tags=["Events"], route_class=JsonRoute)

Types = Annotated[
    list[FeedEventType],
    Query(
        alias="type",
        description="Return only events of these types. Repeat the parameter to pass several "
        "types.",
    ),
]


@router.get(
    "/events",
    summary="List all events",
    response_model=Envelope[FeedEventsPage],
    responses=error_responses(
        AUTH_INSUFFICIENT_SCOPE, AUTH_RESTRICTED_CREDENTIAL, CURSOR_INVALID, LIST_NOT_FOUND
    ),
)
def list_events(
    state: StateOf,
    caller: Annotated[Caller, EVENT_TYPE_SCOPES],
    types: Types = [],  # noqa: B006 - FastAPI copies it
    list_id: Annotated[PathId | None, Query(description="Return only events of this list")] = None,
    cursor: Annotated[
        str | None,
        Query(
            description="The `next_cursor` of the previous page. Omit the cursor to start with "
            "the oldest event."
        ),
    ] = None,
    limit: Limit = 50,
) -> Response:
    """List your events of the last 30 days, oldest first. The response contains only event types
    that your credential can read.

    To get the next page, pass `next_cursor` as `cursor`, even after an empty page. No event is
    skipped or repeated. A bulk action creates one event with its counts. A session receives at most
    200 events per page. After more than 100 pages of events or members in an hour, Pressroom
    records the security event `members.read`.
    """
    limit = limit_members_page(caller, PageRequest(limit)).limit
    with state.resources.unit_of_work() as uow:
        page = reading.read_page(
            uow,
            caller.account_id,
            types=list_visible_types(caller, only=types),
            list_id=list_id,
            cursor=cursor,
            limit=limit,
        )
        items = render_events(uow.session, page.events)
    count_members_page(state, caller)
    pagination = {"limit": limit, "next_cursor": page.next_cursor, "has_more": page.has_more}
    return build_plain_response({"pagination": pagination, "items": items})
