"""What an owner sets of one webhook endpoint, its secret, and its end."""

from fastapi import APIRouter
from fastapi.responses import Response

from api.access.requirements import PUBLIC
from api.console.assets import CONSOLE_PATH
from api.console.of_programs.event_words import type_groups
from api.console.of_programs.shown_webhooks import ShownEndpoint
from api.console.of_programs.webhook_forms import (
    BOX,
    PLACES,
    STATES,
    endpoint_change_body,
    endpoint_form,
)
from api.console.typed_forms import TypedForm
from api.console.visits import ConsoleVisit, FormVisit, RecentFormVisit, RecentVisit, Visit
from api.limits.bulkheads import RECORDS
from api.parameters import PathId
from api.request_ids import current_request_id
from core.errors import DomainError
from services.webhooks import webhook_endpoints
from services.webhooks.webhook_endpoints import EndpointChange

# No operations of the API, so not in its document.
_ALL = f"{CONSOLE_PATH}/programs/webhooks"
router = APIRouter(prefix=f"{_ALL}/{{endpoint_id}}", dependencies=[PUBLIC], include_in_schema=False)


@router.get("/change")
@RECORDS.threaded
def show_change(visit: RecentVisit, endpoint_id: PathId) -> Response:
    shown = _own(visit, endpoint_id)
    return _change_page(visit, shown, endpoint_form(shown.endpoint))


@router.post("/change")
async def change_endpoint(visit: RecentFormVisit, endpoint_id: PathId) -> Response:
    """Change the URL, the types, and whether anything is sent."""
    shown = await RECORDS.run(_own, visit, endpoint_id)
    try:
        body = endpoint_change_body(visit.form)
        if body.url is not None and body.url != shown.url:
            await visit.state.check_receiver(visit.user_id, body.url)
        change = EndpointChange(url=body.url, types=body.types, state=body.state)
        await RECORDS.run(_change, visit, endpoint_id, change)
    except DomainError as error:
        return await RECORDS.run(_change_page, visit, shown, visit.refused(error, PLACES))
    return visit.done(f"{_ALL}/{endpoint_id}", "The webhook is changed.")


@router.get("/rotate")
@RECORDS.threaded
def show_rotation(visit: RecentVisit, endpoint_id: PathId) -> Response:
    """What it means to make a new secret, before it is done."""
    return visit.page("rotate_webhook.html", shown=_own(visit, endpoint_id))


@router.post("/rotate")
@RECORDS.threaded
def rotate_secret(visit: RecentFormVisit, endpoint_id: PathId) -> Response:
    """Make a new secret and show it, once."""
    shown, wrapper = _own(visit, endpoint_id), visit.state.resources.key_wrapper
    with visit.unit_of_work() as uow:
        secret = webhook_endpoints.rotate(uow, wrapper, visit.caller, endpoint_id)
    return visit.page("webhook_secret.html", shown=shown, secret=secret, is_new=False)


@router.get("/end")
@RECORDS.threaded
def show_endpoint_end(visit: Visit, endpoint_id: PathId) -> Response:
    """What it means to end the endpoint, before it is done."""
    return visit.page("end_webhook.html", shown=_own(visit, endpoint_id))


@router.post("/end")
@RECORDS.threaded
def end_endpoint(visit: FormVisit, endpoint_id: PathId) -> Response:
    with visit.unit_of_work() as uow:
        webhook_endpoints.delete(uow, visit.caller, endpoint_id)
    return visit.done(_ALL, "The webhook is ended: nothing is sent to it any more.")


def _own(visit: ConsoleVisit, endpoint_id: int) -> ShownEndpoint:
    with visit.unit_of_work() as uow:
        return ShownEndpoint(webhook_endpoints.get(uow, visit.caller, endpoint_id), None)


def _change(visit: ConsoleVisit, endpoint_id: int, to: EndpointChange) -> None:
    with visit.unit_of_work() as uow:
        webhook_endpoints.change(
            uow, visit.caller, endpoint_id, to, request_id=current_request_id()
        )


def _change_page(visit: ConsoleVisit, shown: ShownEndpoint, form: TypedForm) -> Response:
    return visit.form_page(
        "change_webhook.html",
        form,
        shown=shown,
        groups=type_groups(),
        box_name=BOX,
        states=STATES,
    )
