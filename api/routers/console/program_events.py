"""The newest events of an owner's feed."""

from fastapi import APIRouter
from fastapi.responses import Response

from api.access.requirements import PUBLIC
from api.console.assets import CONSOLE_PATH
from api.console.of_programs.event_words import ShownEvent, type_choices
from api.console.typed_forms import TypedForm
from api.console.visits import Visit
from api.limits.bulkheads import RECORDS
from services.feed import reading
from services.feed.catalogue import FeedEventType, visible_types
from services.feed.showing import show

# No operations of the API, so not in its document.
router = APIRouter(
    prefix=f"{CONSOLE_PATH}/programs", dependencies=[PUBLIC], include_in_schema=False
)

EVENTS_ON_PAGE = 40
_TYPE = "type"


@router.get("/feed")
@RECORDS.threaded
def show_events(visit: Visit) -> Response:
    """What happened last, all of it or of one type."""
    sent = visit.request.query_params.get(_TYPE, "")
    only = [kind for kind in FeedEventType if kind == sent]
    caller = visit.caller
    with visit.unit_of_work() as uow:
        types = visible_types(caller.scopes, unrestricted=caller.unrestricted, only=only)
        found = reading.newest(uow.session, visit.user_id, types=types, limit=EVENTS_ON_PAGE)
        events = [ShownEvent.of(each) for each in show(uow.session, found)]
    return visit.form_page(
        "events.html",
        TypedForm({_TYPE: only[0].value} if only else {}),
        events=events,
        types=type_choices(),
        most=EVENTS_ON_PAGE,
    )
