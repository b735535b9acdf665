"""An owner's webhook endpoints: all of them, a new one, and one with what was sent to it."""

from functools import partial

from fastapi import APIRouter
from fastapi.responses import Response

from api.access.requirements import PUBLIC
from api.console.assets import CONSOLE_PATH
from api.console.of_programs.event_words import type_groups
from api.console.of_programs.shown_webhooks import ShownDelivery, ShownEndpoint
from api.console.of_programs.webhook_forms import BOX, PLACES, new_endpoint_body
from api.console.typed_forms import TypedForm
from api.console.visits import ConsoleVisit, FormVisit, RecentFormVisit, RecentVisit, Visit
from api.limits.bulkheads import RECORDS
from api.parameters import Cursor, PathId
from api.request_ids import current_request_id
from api.schemas.webhook_endpoints import NewWebhookEndpoint
from core.errors import DomainError
from models import WebhookEndpoint
from services.mailing import lists
from services.paging import WHOLE
from services.webhooks import deliveries, webhook_endpoints
from storage.unit_of_work import UnitOfWork

# No operations of the API, so not in its document.
PATH = f"{CONSOLE_PATH}/programs/webhooks"
router = APIRouter(prefix=PATH, dependencies=[PUBLIC], include_in_schema=False)

DELIVERIES_ON_PAGE = 20


@router.get("")
@RECORDS.threaded
def show_endpoints(visit: Visit) -> Response:
    """The owner's endpoints, newest first."""
    with visit.unit_of_work() as uow:
        found = webhook_endpoints.list_of(uow, visit.caller)
        titles = lists.titles_of(uow, [each.list_id for each in found if each.list_id])
    shown = [ShownEndpoint(each, titles.get(each.list_id or 0)) for each in found]
    return visit.page("webhooks.html", endpoints=shown)


@router.get("/new")
@RECORDS.threaded
def show_new_endpoint(visit: RecentVisit) -> Response:
    return _new_page(visit, TypedForm())


@router.post("/new")
async def make_endpoint(visit: RecentFormVisit) -> Response:
    """Make the endpoint and show its secret, once."""
    try:
        body = new_endpoint_body(visit.form)
        await visit.state.check_receiver(visit.user_id, body.url)
        return await RECORDS.run(_made, visit, body)
    except DomainError as error:
        return await RECORDS.run(_refused, visit, error)


@router.get("/{endpoint_id}")
@RECORDS.threaded
def show_endpoint(visit: Visit, endpoint_id: PathId, cursor: Cursor = None) -> Response:
    """One endpoint, and what became of the events for it, newest first."""
    with visit.unit_of_work() as uow:
        endpoint = webhook_endpoints.get(uow, visit.caller, endpoint_id)
        shown = _shown(uow, endpoint)
        found = deliveries.page(
            uow, visit.caller, endpoint_id, limit=DELIVERIES_ON_PAGE, cursor=cursor
        )
    sent = [ShownDelivery(each) for each in found.deliveries]
    return visit.page(
        "webhook.html",
        shown=shown,
        deliveries=sent,
        is_live=cursor is None and shown.is_active and any(each.is_soon for each in sent),
        next_cursor=found.next_cursor,
        cursor=cursor,
    )


@router.post("/{endpoint_id}/test")
@RECORDS.threaded
def send_test_event(visit: FormVisit, endpoint_id: PathId) -> Response:
    with visit.unit_of_work() as uow:
        deliveries.send_test(uow, visit.caller, endpoint_id)
    return visit.done(f"{PATH}/{endpoint_id}", "A test event is on its way.")


@router.post("/{endpoint_id}/deliveries/{delivery_id}/resend")
@RECORDS.threaded
def resend_event(visit: FormVisit, endpoint_id: PathId, delivery_id: PathId) -> Response:
    """Send one event again, whatever became of it before."""
    with visit.unit_of_work() as uow:
        deliveries.resend(uow, visit.caller, endpoint_id, delivery_id)
    return visit.done(f"{PATH}/{endpoint_id}", "The event is sent again.")


def _made(visit: ConsoleVisit, body: NewWebhookEndpoint) -> Response:
    make = partial(webhook_endpoints.make, request_id=current_request_id())
    with visit.unit_of_work() as uow:
        endpoint, secret = make(
            uow,
            visit.state.resources.key_wrapper,
            visit.caller,
            url=body.url,
            types=body.types,
            list_id=body.list_id,
        )
        shown = _shown(uow, endpoint)
    return visit.page("webhook_secret.html", shown=shown, secret=secret, is_new=True)


def _shown(uow: UnitOfWork, endpoint: WebhookEndpoint) -> ShownEndpoint:
    title = None
    if endpoint.list_id is not None:
        title = lists.titles_of(uow, [endpoint.list_id])[endpoint.list_id]
    return ShownEndpoint(endpoint, title)


def _refused(visit: ConsoleVisit, error: DomainError) -> Response:
    return _new_page(visit, visit.refused(error, PLACES))


def _new_page(visit: ConsoleVisit, form: TypedForm) -> Response:
    with visit.unit_of_work() as uow:
        own = lists.list_of(uow, visit.user_id, WHOLE).rows
    choices = [("", "All of them"), *((str(each.id), each.title) for each in own)]
    return visit.form_page(
        "new_webhook.html", form, groups=type_groups(), box_name=BOX, lists=choices
    )
