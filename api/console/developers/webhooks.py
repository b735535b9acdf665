"""An owner's webhook endpoints: all of them, a new one, and one with its deliveries."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from urllib.parse import urlsplit

from fastapi.responses import Response

from api.console.assets import CONSOLE_PATH
from api.console.developers.views import TYPE_GROUPS, type_words
from api.console.requests import (
    Console,
    ConsoleForm,
    ConsoleRequest,
    EmptyForm,
    RecentConsole,
    RecentConsoleForm,
    build_router,
)
from api.console.typed_forms import TypedForm, field_error, parse_body, read_text
from api.limits.bulkheads import RECORDS
from api.paging import Cursor
from api.record_ids import PathId, parse_id_or_text
from api.schemas.webhook_endpoints import NewWebhookEndpoint, WebhookEndpointChange
from api.state import Transaction
from core import clock
from core.errors import DomainError
from core.errors.webhooks import WEBHOOK_URL_NOT_ALLOWED
from models import DeliveryStatus, EndpointState, WebhookDelivery, WebhookEndpoint
from services.feed.catalogue import FeedEventType
from services.paging import PageRequest
from services.subscriptions import lists
from services.webhooks import deliveries, webhook_endpoints
from services.webhooks.webhook_endpoints import EndpointChange
from storage.unit_of_work import UnitOfWork

PATH = f"{CONSOLE_PATH}/developers/webhooks"
router = build_router(PATH)

DELIVERIES_ON_PAGE = 20
MAX_ANSWER_CHARACTERS = 200
_SOON = timedelta(minutes=1)
_STATES = {
    EndpointState.ACTIVE: "active",
    EndpointState.PAUSED: "paused",
    EndpointState.ENDED: "ended",
}
# The form fields at which errors without a field of their own are shown.
PLACES = {WEBHOOK_URL_NOT_ALLOWED.code: "url"}
BOX = "type."
_CHOICES = (
    (EndpointState.ACTIVE.value, "Send events", "One that was paused gets what it missed."),
    (EndpointState.PAUSED.value, "Pause it", "Nothing is sent until you say so."),
)


@dataclass(frozen=True)
class ShownEndpoint:
    """An endpoint in words.

    Attributes:
        list_title: the title of the list whose events it gets; ``None``: it gets those of all.
    """

    endpoint: WebhookEndpoint
    list_title: str | None = None

    @property
    def host(self) -> str:
        return urlsplit(self.endpoint.url).netloc

    @property
    def state(self) -> str:
        if self.is_active and self.endpoint.failing_since is not None:
            return "failing"
        return _STATES[EndpointState(self.endpoint.state)]

    @property
    def is_active(self) -> bool:
        return self.endpoint.state == EndpointState.ACTIVE

    @property
    def has_ended(self) -> bool:
        return self.endpoint.state == EndpointState.ENDED

    @property
    def types(self) -> list[tuple[str, str]]:
        return [(kind, type_words(kind)) for kind in self.endpoint.types]


@dataclass(frozen=True)
class ShownDelivery:
    delivery: WebhookDelivery

    @property
    def words(self) -> str:
        return type_words(self.delivery.event_type)

    @property
    def is_pending(self) -> bool:
        return self.delivery.status == DeliveryStatus.PENDING

    @property
    def state(self) -> str:
        if self.is_pending:
            return "is tried again" if self.delivery.round_attempts else "waits to be sent"
        return "delivered" if self.delivery.status == DeliveryStatus.DELIVERED else "given up"

    @property
    def due_at(self) -> datetime | None:
        return self.delivery.due_at if self.is_pending and self.delivery.round_attempts else None

    @property
    def is_soon(self) -> bool:
        """Return whether it may change while a person looks."""
        return self.is_pending and self.delivery.due_at < clock.now() + _SOON

    @property
    def answer(self) -> str:
        """The status of the last answer, or why there was none."""
        last = self.delivery
        if last.status_code is None:
            return last.error or ("–" if last.last_attempt_at is None else "none")
        return f"{last.status_code}, in {last.milliseconds:,} ms"

    @property
    def body(self) -> str:
        written = (self.delivery.answer or b"").decode(errors="replace").strip()
        is_cut = len(written) > MAX_ANSWER_CHARACTERS
        return written[:MAX_ANSWER_CHARACTERS] + ("…" if is_cut else "")


def _ticked(form: Mapping[str, str]) -> list[str]:
    return [kind.value for kind in FeedEventType if BOX + kind in form]


@router.get("")
def show_endpoints(console: Console, uow: Transaction) -> Response:
    shown = _shown(uow, webhook_endpoints.list_endpoints(uow, console.caller))
    return console.render_page("webhooks.html", endpoints=shown)


@router.get("/new")
def show_new_endpoint(console: RecentConsole, form: EmptyForm) -> Response:
    with console.unit_of_work() as uow:
        own = lists.list_choices(uow, console.user_id)
    choices = [("", "All of them"), *((str(each.id), each.title) for each in own)]
    return console.render_form(
        "new_webhook.html", form, groups=TYPE_GROUPS, box_name=BOX, lists=choices
    )


@router.post("/new")
async def make_endpoint(console: RecentConsoleForm) -> Response:
    """Create the endpoint and show its secret, once."""
    values = {
        "url": console.form.get("url", "").strip(),
        "types": _ticked(console.form),
        "list_id": parse_id_or_text(read_text(console.form, "list_id")),
    }
    try:
        body = parse_body(NewWebhookEndpoint, values)
        await console.state.check_receiver(console.user_id, body.url)
        return await RECORDS.run(_made, console, body)
    except DomainError as error:
        form = await RECORDS.run(console.add_error, error, PLACES)
        return await RECORDS.run(show_new_endpoint, console, form)


def _made(console: ConsoleRequest, body: NewWebhookEndpoint) -> Response:
    with console.unit_of_work() as uow:
        endpoint, secret = webhook_endpoints.create_endpoint(
            uow, console.caller, url=body.url, types=body.types, list_id=body.list_id
        )
        [shown] = _shown(uow, [endpoint])
    return console.render_page("webhook_secret.html", shown=shown, secret=secret, is_new=True)


@router.get("/{endpoint_id}")
def show_endpoint(
    console: Console, uow: Transaction, endpoint_id: PathId, cursor: Cursor = None
) -> Response:
    [shown] = _shown(uow, [webhook_endpoints.get_endpoint(uow, console.caller, endpoint_id)])
    wanted = PageRequest(DELIVERIES_ON_PAGE, cursor=cursor)
    found = deliveries.list_deliveries(uow, console.caller, endpoint_id, wanted)
    sent = [ShownDelivery(each) for each in found.rows]
    return console.render_page(
        "webhook.html",
        shown=shown,
        deliveries=sent,
        is_live=cursor is None and shown.is_active and any(each.is_soon for each in sent),
        next_cursor=found.next_cursor,
    )


@router.post("/{endpoint_id}/test")
def send_test_event(console: ConsoleForm, uow: Transaction, endpoint_id: PathId) -> Response:
    deliveries.send_test(uow, console.caller, endpoint_id)
    return console.redirect_with_notice(f"{PATH}/{endpoint_id}", "A test event is on its way.")


@router.post("/{endpoint_id}/deliveries/{delivery_id}/resend")
def resend_event(
    console: ConsoleForm, uow: Transaction, endpoint_id: PathId, delivery_id: PathId
) -> Response:
    """Send one event again, whatever became of it before."""
    deliveries.resend_delivery(uow, console.caller, endpoint_id, delivery_id)
    return console.redirect_with_notice(f"{PATH}/{endpoint_id}", "The event is sent again.")


@router.get("/{endpoint_id}/change")
def show_change(console: RecentConsole, endpoint_id: PathId, form: EmptyForm) -> Response:
    shown = _own(console, endpoint_id)
    boxes = {BOX + kind: "on" for kind in shown.endpoint.types}
    return console.render_form(
        "change_webhook.html",
        form.fill({"url": shown.endpoint.url, "state": shown.endpoint.state, **boxes}),
        shown=shown,
        groups=TYPE_GROUPS,
        box_name=BOX,
        states=_CHOICES,
    )


@router.post("/{endpoint_id}/change")
async def change_endpoint(console: RecentConsoleForm, endpoint_id: PathId) -> Response:
    """Change the URL, the types, and whether anything is sent."""
    shown = await RECORDS.run(_own, console, endpoint_id)
    url, state = console.form.get("url", "").strip(), console.form.get("state", "")
    try:
        if state not in [value for value, *_ in _CHOICES]:
            raise field_error("state", "must be one of those that the page offers")
        values = {"url": url, "types": _ticked(console.form), "state": state}
        body = parse_body(WebhookEndpointChange, values)
        if body.url is not None and body.url != shown.endpoint.url:
            await console.state.check_receiver(console.user_id, body.url)
        to = EndpointChange(url=body.url, types=body.types, state=body.state)
        await console.state.in_unit_of_work(
            webhook_endpoints.change_endpoint, console.caller, endpoint_id, to
        )
    except DomainError as error:
        return await RECORDS.run(
            show_change, console, endpoint_id, console.add_error(error, PLACES)
        )
    return console.redirect_with_notice(f"{PATH}/{endpoint_id}", "The webhook is changed.")


@router.get("/{endpoint_id}/rotate")
def show_rotation(console: RecentConsole, endpoint_id: PathId) -> Response:
    return console.render_page("rotate_webhook.html", shown=_own(console, endpoint_id))


@router.post("/{endpoint_id}/rotate")
def rotate_secret(console: RecentConsoleForm, endpoint_id: PathId) -> Response:
    shown = _own(console, endpoint_id)
    with console.unit_of_work() as uow:
        secret = webhook_endpoints.rotate_secret(uow, console.caller, endpoint_id)
    return console.render_page("webhook_secret.html", shown=shown, secret=secret, is_new=False)


@router.get("/{endpoint_id}/end")
def show_endpoint_end(console: Console, endpoint_id: PathId) -> Response:
    return console.render_page("end_webhook.html", shown=_own(console, endpoint_id))


@router.post("/{endpoint_id}/end")
def end_endpoint(console: ConsoleForm, uow: Transaction, endpoint_id: PathId) -> Response:
    webhook_endpoints.delete_endpoint(uow, console.caller, endpoint_id)
    return console.redirect_with_notice(
        PATH, "The webhook is deleted: nothing is sent to it any more."
    )


# The fields of the form, which are in the page's URL too.
DAY, TIME = "day", "time"


@router.get("/{endpoint_id}/replay")
def ask_to_replay(console: Console, endpoint_id: PathId, form: EmptyForm) -> Response:
    """Show the form, with the number of events once a moment was chosen."""
    shown, found, since = _own(console, endpoint_id), None, None
    asked = dict(console.request.query_params)
    if DAY in asked and not form.typed:
        form = TypedForm(asked)
        try:
            since = _moment(form.typed)
            with console.unit_of_work() as uow:
                found = deliveries.count_events_since(uow, console.caller, endpoint_id, since)
        except DomainError as error:
            form = form.add_error(error)
    return console.render_form(
        "replay_webhook.html",
        form.fill({DAY: clock.now().date().isoformat(), TIME: "00:00"}),
        shown=shown,
        since=since,
        found=found,
        example=clock.format_timestamp(since or clock.now()),
    )


@router.post("/{endpoint_id}/replay")
def replay_events(console: ConsoleForm, endpoint_id: PathId) -> Response:
    try:
        since = _moment(console.form)
        with console.unit_of_work() as uow:
            if not deliveries.replay_events(uow, console.caller, endpoint_id, since):
                raise field_error(DAY, "nothing of what it gets has happened since then")
    except DomainError as error:
        return ask_to_replay(console, endpoint_id, console.add_error(error))
    return console.redirect_with_notice(
        f"{PATH}/{endpoint_id}", "The events are sent again, the oldest first."
    )


def _moment(typed: Mapping[str, str]) -> datetime:
    """Return the first moment to replay; raises ``body.invalid``."""
    try:
        day = date.fromisoformat(typed.get(DAY, "").strip())
    except ValueError:
        raise field_error(DAY, "must be a day, such as 2026-11-22") from None
    written = read_text(typed, TIME)
    try:
        of_day = time() if written is None else time.fromisoformat(written)
    except ValueError:
        of_day = None
    if of_day is None or of_day.tzinfo is not None:
        raise field_error(TIME, "must be a time of the day, such as 14:30")
    return datetime.combine(day, of_day, UTC)


def _shown(uow: UnitOfWork, endpoints: Sequence[WebhookEndpoint]) -> list[ShownEndpoint]:
    titles = lists.titles_of(uow, [each.list_id for each in endpoints if each.list_id])
    return [ShownEndpoint(each, titles.get(each.list_id or 0)) for each in endpoints]


def _own(console: ConsoleRequest, endpoint_id: int) -> ShownEndpoint:
    with console.unit_of_work() as uow:
        return ShownEndpoint(webhook_endpoints.get_endpoint(uow, console.caller, endpoint_id))
