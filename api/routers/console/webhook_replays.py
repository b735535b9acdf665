"""The events of a webhook that are sent again since a moment, with their number before it."""

from collections.abc import Mapping

from fastapi import APIRouter
from fastapi.responses import Response

from api.access.requirements import PUBLIC
from api.console.assets import CONSOLE_PATH
from api.console.of_programs.replay_forms import DAY, TIME, replay_moment
from api.console.of_programs.shown_webhooks import ShownEndpoint
from api.console.typed_forms import TypedForm, wrong_field
from api.console.visits import ConsoleVisit, FormVisit, Visit
from api.limits.bulkheads import RECORDS
from api.parameters import PathId
from core import clock
from core.errors import DomainError
from services.webhooks import deliveries, webhook_endpoints

# No operations of the API, so not in its document.
_ALL = f"{CONSOLE_PATH}/programs/webhooks"
router = APIRouter(
    prefix=f"{_ALL}/{{endpoint_id}}/replay", dependencies=[PUBLIC], include_in_schema=False
)


@router.get("")
@RECORDS.threaded
def ask_to_replay(visit: Visit, endpoint_id: PathId) -> Response:
    """The form, and how many events it means once a moment was chosen."""
    typed = dict(visit.request.query_params)
    if DAY not in typed:
        today = clock.now().date().isoformat()
        return _page(visit, endpoint_id, TypedForm({DAY: today, TIME: "00:00"}), None)
    return _page(visit, endpoint_id, TypedForm(typed), typed)


@router.post("")
@RECORDS.threaded
def replay_events(visit: FormVisit, endpoint_id: PathId) -> Response:
    try:
        since = replay_moment(visit.form)
        with visit.unit_of_work() as uow:
            if not deliveries.replay(uow, visit.caller, endpoint_id, since):
                raise wrong_field(DAY, "nothing of what it gets has happened since then")
    except DomainError as error:
        return _page(visit, endpoint_id, visit.refused(error), None)
    return visit.done(f"{_ALL}/{endpoint_id}", "The events are sent again, the oldest first.")


def _page(
    visit: ConsoleVisit, endpoint_id: int, form: TypedForm, asked: Mapping[str, str] | None
) -> Response:
    """``asked``: what says since when, if its number is wanted."""
    found, since = None, None
    with visit.unit_of_work() as uow:
        shown = ShownEndpoint(webhook_endpoints.get(uow, visit.caller, endpoint_id), None)
        if asked is not None:
            try:
                since = replay_moment(asked)
                found = deliveries.count_since(uow, visit.caller, endpoint_id, since)
            except DomainError as error:
                form = form.refused(error)
    return visit.form_page(
        "replay_webhook.html",
        form,
        shown=shown,
        since=since,
        found=found,
        example=clock.iso(since or clock.now()),
    )
