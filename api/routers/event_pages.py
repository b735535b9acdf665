from fastapi import APIRouter
from fastapi.responses import Response

from api.access.account_events import event_lines
from api.access.page_sessions import Member, session_page
from api.access.requirements import PUBLIC
from api.limits.bulkheads import RECORDS
from api.parameters import Cursor, StateOf
from services.events import event_reading
from services.paging import PageRequest
from services.people.page_urls import EVENTS_PATH

# No operations of the API, so not in its document.
router = APIRouter(dependencies=[PUBLIC], include_in_schema=False)

EVENTS_ON_PAGE = 50


@router.get(EVENTS_PATH)
@RECORDS.threaded
def show_events(state: StateOf, member: Member, cursor: Cursor = None) -> Response:
    """What happened to the person's account, page by page."""
    with state.resources.unit_of_work() as uow:
        wanted = PageRequest(EVENTS_ON_PAGE, cursor=cursor)
        found = event_reading.page(uow, member.user_id, wanted)
    events, next_cursor = event_lines(found.rows), found.next_cursor
    return session_page(member, state, "events.html", events=events, next_cursor=next_cursor)
