"""Pages on which an owner manages webhook endpoints and sees their deliveries."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from urllib.parse import urlsplit

import orjson
from fastapi.responses import Response

from api.console.developers.views import (
    TYPE_GROUPS,
    describe_type,
    find_subject,
    find_subject_names,
    names_members,
)
from api.console.plan_notices import find_plan_notice
from api.console.requests import (
    AccessForm,
    AccessPage,
    ConsoleRequest,
    EmptyForm,
    RecentAccessForm,
    RecentAccessPage,
    build_router,
    shows_errors_on,
)
from api.console.typed_forms import TypedForm, build_field_error, parse_body, read_text
from api.paging import Cursor
from api.record_ids import PathId, parse_id_or_text
from api.schemas.events import EVENT_EXAMPLE
from api.schemas.webhook_endpoints import NewWebhookEndpoint, WebhookEndpointChange
from api.state import Transaction
from core import clock
from core.errors import DomainError
from core.errors.webhooks import WEBHOOK_URL_NOT_ALLOWED
from core.settings.notations import PlanQuota
from models import DeliveryStatus, EndpointState, WebhookDelivery, WebhookEndpoint
from services.accounts import page_paths
from services.feed.catalogue import FeedEventType
from services.paging import PageRequest
from services.subscriptions import lists
from services.webhooks import deliveries, messages, webhook_endpoints
from services.webhooks.webhook_endpoints import EndpointChange
from storage.unit_of_work import UnitOfWork

PATH = page_paths.WEBHOOKS_PATH
router = build_router(PATH)

DELIVERIES_ON_PAGE = 20
MAX_ANSWER_CHARACTERS = 200
# The page of an endpoint refreshes itself if a delivery attempt is due within this time.
_SOON_DELAY = timedelta(minutes=1)
_STATE_LABELS = {
    EndpointState.ACTIVE: "Active",
    EndpointState.PAUSED: "Paused",
    EndpointState.ENDED: "Disabled",
}
# Maps an error code to the form field that shows the error.
PLACES = {WEBHOOK_URL_NOT_ALLOWED.code: "url"}
TYPE_PREFIX = "type."
# Each group has a checkbox for all its types. The name of the checkbox consists of this prefix and
# the group's position.
_GROUP_PREFIX = "group."
# The types that are ticked in the form for a new webhook.
_RECOMMENDED_TYPES = (
    FeedEventType.SUBSCRIPTION_CREATED,
    FeedEventType.SUBSCRIPTION_CONFIRMED,
    FeedEventType.SUBSCRIPTION_LEFT,
)
# Maps each state that an owner can choose for a webhook to the notice that confirms the choice.
_STATE_NOTICES = {
    EndpointState.ACTIVE: "The webhook gets events again, including the events that it missed.",
    EndpointState.PAUSED: "The webhook is paused.",
}


# The form fields and URL parameters for the time from which events are sent again.
DAY_FIELD = "day"
TIME_FIELD = "time"


@dataclass(frozen=True)
class EndpointView:
    """A webhook endpoint, formatted for a page.

    ``list_title``: the title of the list whose events are sent, or ``None`` for the events of all
    lists.
    """

    endpoint: WebhookEndpoint
    list_title: str | None = None

    @property
    def host(self) -> str:
        return urlsplit(self.endpoint.url).netloc

    @property
    def state(self) -> str:
        if self.is_active and self.endpoint.failing_since is not None:
            return "Failing"
        return _STATE_LABELS[EndpointState(self.endpoint.state)]

    @property
    def is_active(self) -> bool:
        return self.endpoint.state == EndpointState.ACTIVE

    @property
    def has_ended(self) -> bool:
        return self.endpoint.state == EndpointState.ENDED

    @property
    def types(self) -> list[tuple[str, str]]:
        return [(kind, describe_type(kind)) for kind in self.endpoint.types]


@dataclass(frozen=True)
class DeliveryView:
    """The delivery of an event to a webhook endpoint, formatted for a page.

    ``about``: the name of the event's subject, or an empty string if the name is unknown.
    """

    delivery: WebhookDelivery
    about: str = ""

    @property
    def words(self) -> str:
        return describe_type(self.delivery.event_type)

    @property
    def is_pending(self) -> bool:
        return self.delivery.status == DeliveryStatus.PENDING

    @property
    def state(self) -> str:
        if self.is_pending:
            return "Waiting" if self.delivery.round_attempts else "Queued"
        return "Delivered" if self.is_delivered else "Failed"

    @property
    def is_delivered(self) -> bool:
        return self.delivery.status == DeliveryStatus.DELIVERED

    @property
    def has_failed(self) -> bool:
        return not self.is_pending and not self.is_delivered

    @property
    def due_at(self) -> datetime | None:
        due_at = self.delivery.due_at
        is_waiting = self.is_pending and self.delivery.round_attempts and due_at > clock.now()
        return due_at if is_waiting else None

    @property
    def is_soon(self) -> bool:
        """Return whether the next delivery attempt is due within a minute."""
        return self.is_pending and self.delivery.due_at < clock.now() + _SOON_DELAY

    @property
    def answer(self) -> str:
        """Return the status of the latest response, or why there was no response."""
        delivery = self.delivery
        if delivery.status_code is None:
            return delivery.error or ("–" if delivery.last_attempt_at is None else "no response")
        if delivery.milliseconds is None:
            return str(delivery.status_code)
        return f"{delivery.status_code}, in {delivery.milliseconds:,} ms"

    @property
    def failure(self) -> str:
        """Return a sentence about the latest failed attempt, without its duration."""
        if self.delivery.status_code is not None:
            return f"Your server responds with the status {self.delivery.status_code}."
        return self.delivery.error or "Your server doesn’t respond."

    @property
    def full_body(self) -> str:
        """Return the stored part of the latest response body."""
        return (self.delivery.answer or b"").decode(errors="replace").strip()

    @property
    def body(self) -> str:
        text = self.full_body
        is_cut = len(text) > MAX_ANSWER_CHARACTERS
        return text[:MAX_ANSWER_CHARACTERS] + ("…" if is_cut else "")


@router.get("")
def show_endpoints(console: AccessPage, uow: Transaction) -> Response:
    views = _build_views(uow, webhook_endpoints.list_endpoints(uow, console.caller))
    return console.render_page("webhooks.html", endpoints=views)


@router.get("/new")
def show_new_endpoint(console: RecentAccessPage, uow: Transaction, form: EmptyForm) -> Response:
    own_lists = lists.list_choices(uow, console.account_id)
    choices = [("", "All lists"), *((str(each.id), each.title) for each in own_lists)]
    return console.render_page(
        "new_webhook.html",
        form.fill({TYPE_PREFIX + kind: "on" for kind in _RECOMMENDED_TYPES}),
        groups=TYPE_GROUPS,
        box_name=TYPE_PREFIX,
        group_name=_GROUP_PREFIX,
        lists=choices,
        example=orjson.dumps(EVENT_EXAMPLE, option=orjson.OPT_INDENT_2).decode(),
    )


@router.post("/new")
@shows_errors_on(show_new_endpoint, PLACES)
async def create_endpoint(console: RecentAccessForm) -> Response:
    """Create a webhook endpoint, and show its secret once."""
    values = {
        "url": console.form.get("url", "").strip(),
        "types": _read_ticked_types(console.form),
        "list_id": parse_id_or_text(read_text(console.form, "list_id")),
    }
    body = parse_body(NewWebhookEndpoint, values)
    await console.state.check_receiver(console.account_id, body.url)
    return await console.state.in_unit_of_work(_create_endpoint, console, body)


def _create_endpoint(
    uow: UnitOfWork, console: ConsoleRequest, body: NewWebhookEndpoint
) -> Response:
    endpoint, secret = webhook_endpoints.create_endpoint(
        uow, console.caller, url=body.url, types=body.types, list_id=body.list_id
    )
    [view] = _build_views(uow, [endpoint])
    return console.render_page("webhook_secret.html", view=view, secret=secret, is_new=True)


def _read_ticked_types(form: Mapping[str, str]) -> list[str]:
    ticked_groups = [
        types for number, (_, types) in enumerate(TYPE_GROUPS) if f"{_GROUP_PREFIX}{number}" in form
    ]
    kinds_of_groups = {kind for types in ticked_groups for kind, _ in types}
    return [
        kind.value
        for kind in FeedEventType
        if TYPE_PREFIX + kind in form or kind in kinds_of_groups
    ]


@router.get("/{endpoint_id}")
def show_endpoint(
    console: AccessPage, uow: Transaction, endpoint_id: PathId, cursor: Cursor = None
) -> Response:
    [view] = _build_views(uow, [webhook_endpoints.get_endpoint(uow, console.caller, endpoint_id)])
    page_request = PageRequest(DELIVERIES_ON_PAGE, cursor=cursor)
    page = deliveries.list_deliveries(uow, console.caller, endpoint_id, page_request)
    events = messages.load_events(uow, page.rows)
    if names_members(events.values()):
        console.count_members_page(uow)
    names = find_subject_names(uow, console.account_id, events.values())
    delivery_views = [
        DeliveryView(each, find_subject(events[each.id], names)[0] if each.id in events else "")
        for each in page.rows
    ]
    common_failure = _find_common_failure(delivery_views)
    # If all deliveries fail in the same way, only a new delivery is worth watching.
    has_news = (
        each.is_soon and (common_failure is None or each.delivery.last_attempt_at is None)
        for each in delivery_views
    )
    return console.render_page(
        "webhook.html",
        view=view,
        common_failure=common_failure,
        waiting=[each for each in delivery_views if each.due_at],
        refusal=find_plan_notice(uow, console.account_id, PlanQuota.STORAGE_MB),
        deliveries=delivery_views,
        pending_count=deliveries.count_pending(uow, endpoint_id),
        is_live=cursor is None and view.is_active and any(has_news),
        next_cursor=page.next_cursor,
    )


def _find_common_failure(views: Sequence[DeliveryView]) -> str | None:
    """Return the response that all failed deliveries have in common, to show it only once.

    Return ``None`` if there is only one delivery, or if any delivery succeeded.
    """
    attempted = [each for each in views if each.delivery.last_attempt_at is not None]
    failures = {each.failure for each in attempted}
    has_success = any(each.is_delivered for each in attempted)
    return failures.pop() if len(views) > 1 and len(failures) == 1 and not has_success else None


@router.post("/{endpoint_id}/test")
def send_test_event(console: AccessForm, uow: Transaction, endpoint_id: PathId) -> Response:
    deliveries.send_test(uow, console.caller, endpoint_id)
    return console.redirect(
        f"{PATH}/{endpoint_id}", "The first delivery below shows the result of the test."
    )


@router.post("/{endpoint_id}/retry")
def retry_deliveries(console: AccessForm, uow: Transaction, endpoint_id: PathId) -> Response:
    deliveries.retry_pending(uow, console.caller, endpoint_id)
    return console.redirect(
        f"{PATH}/{endpoint_id}", "The waiting events are being sent now, oldest first."
    )


@router.get("/{endpoint_id}/deliveries/{delivery_id}")
def show_delivery(
    console: AccessPage, uow: Transaction, endpoint_id: PathId, delivery_id: PathId
) -> Response:
    """Show the latest request, whose body is built again from the event, and the response."""
    [view] = _build_views(uow, [webhook_endpoints.get_endpoint(uow, console.caller, endpoint_id)])
    request = messages.rebuild_request(uow, console.caller, endpoint_id, delivery_id)
    event = None if request.body is None else json.loads(request.body)
    if event and names_members([event["data"]]):
        console.count_members_page(uow)
    return console.render_page(
        "delivery.html",
        view=view,
        each=DeliveryView(request.delivery),
        request=request,
        body=event and json.dumps(event, indent=2, ensure_ascii=False),
    )


@router.post("/{endpoint_id}/deliveries/{delivery_id}/resend")
def resend_event(
    console: AccessForm, uow: Transaction, endpoint_id: PathId, delivery_id: PathId
) -> Response:
    """Resend an event to a webhook endpoint, even if it was already delivered."""
    deliveries.resend_delivery(uow, console.caller, endpoint_id, delivery_id)
    return console.redirect(f"{PATH}/{endpoint_id}", "The event is being sent again.")


@router.get("/{endpoint_id}/change")
def show_change(
    console: RecentAccessPage, uow: Transaction, endpoint_id: PathId, form: EmptyForm
) -> Response:
    view = _find_view(uow, console, endpoint_id)
    boxes = {TYPE_PREFIX + kind: "on" for kind in view.endpoint.types}
    return console.render_page(
        "change_webhook.html",
        form.fill({"url": view.endpoint.url, **boxes}),
        view=view,
        groups=TYPE_GROUPS,
        box_name=TYPE_PREFIX,
        group_name=_GROUP_PREFIX,
    )


@router.post("/{endpoint_id}/change")
@shows_errors_on(show_change, PLACES)
async def change_endpoint(console: RecentAccessForm, endpoint_id: PathId) -> Response:
    view = await console.state.in_unit_of_work(_find_view, console, endpoint_id)
    url = console.form.get("url", "").strip()
    values = {"url": url, "types": _read_ticked_types(console.form)}
    body = parse_body(WebhookEndpointChange, values)
    if body.url is not None and body.url != view.endpoint.url:
        await console.state.check_receiver(console.account_id, body.url)
    change = EndpointChange(url=body.url, types=body.types)
    await console.state.in_unit_of_work(
        webhook_endpoints.change_endpoint, console.caller, endpoint_id, change
    )
    return console.redirect(f"{PATH}/{endpoint_id}", "The webhook was changed.")


@router.get("/{endpoint_id}/state")
def show_state(console: AccessPage, uow: Transaction, endpoint_id: PathId) -> Response:
    """Redirect to the webhook's page after the login that ``change_state`` may require."""
    _find_view(uow, console, endpoint_id)
    return console.redirect(f"{PATH}/{endpoint_id}")


@router.post("/{endpoint_id}/state")
def change_state(console: RecentAccessForm, uow: Transaction, endpoint_id: PathId) -> Response:
    is_resumed = console.form.get("state") == EndpointState.ACTIVE
    state = EndpointState.ACTIVE if is_resumed else EndpointState.PAUSED
    change = EndpointChange(state=state)
    webhook_endpoints.change_endpoint(uow, console.caller, endpoint_id, change)
    return console.redirect(f"{PATH}/{endpoint_id}", _STATE_NOTICES[state])


@router.get("/{endpoint_id}/rotate")
def show_rotation(console: RecentAccessPage, uow: Transaction, endpoint_id: PathId) -> Response:
    return console.render_page("rotate_webhook.html", view=_find_view(uow, console, endpoint_id))


@router.post("/{endpoint_id}/rotate")
def rotate_secret(console: RecentAccessForm, uow: Transaction, endpoint_id: PathId) -> Response:
    view = _find_view(uow, console, endpoint_id)
    secret = webhook_endpoints.rotate_secret(uow, console.caller, endpoint_id)
    return console.render_page("webhook_secret.html", view=view, secret=secret, is_new=False)


@router.get("/{endpoint_id}/end")
def show_endpoint_deletion(console: AccessPage, uow: Transaction, endpoint_id: PathId) -> Response:
    return console.render_page("end_webhook.html", view=_find_view(uow, console, endpoint_id))


@router.post("/{endpoint_id}/end")
def delete_endpoint(console: AccessForm, uow: Transaction, endpoint_id: PathId) -> Response:
    webhook_endpoints.delete_endpoint(uow, console.caller, endpoint_id)
    return console.redirect(PATH, "The webhook was deleted.")


@router.get("/{endpoint_id}/replay")
def show_replay(
    console: AccessPage, uow: Transaction, endpoint_id: PathId, form: EmptyForm
) -> Response:
    """Show the form for resending all events since a chosen time.

    If the URL contains a start time, the page shows how many events would be resent.
    """
    view = _find_view(uow, console, endpoint_id)
    notice = find_plan_notice(uow, console.account_id, PlanQuota.STORAGE_MB)
    event_count = None
    since = None
    query = dict(console.request.query_params)
    if DAY_FIELD in query and not form.typed:
        form = TypedForm(query)
        try:
            since = _read_moment(form.typed)
            event_count = deliveries.count_events_since(uow, console.caller, endpoint_id, since)
        except DomainError as error:
            form = form.add_error(error)
    return console.render_page(
        "replay_webhook.html",
        form.fill({DAY_FIELD: clock.now().date().isoformat(), TIME_FIELD: "00:00"}),
        view=view,
        refusal=notice,
        since=since,
        event_count=event_count,
        example=clock.format_timestamp(since or clock.now()),
    )


@router.post("/{endpoint_id}/replay")
@shows_errors_on(show_replay)
def replay_events(console: AccessForm, uow: Transaction, endpoint_id: PathId) -> Response:
    since = _read_moment(console.form)
    if not deliveries.replay_events(uow, console.caller, endpoint_id, since):
        raise build_field_error(DAY_FIELD, "the webhook has no events since this time")
    return console.redirect(
        f"{PATH}/{endpoint_id}", "The events are being sent again, oldest first."
    )


def _read_moment(inputs: Mapping[str, str]) -> datetime:
    """Return the entered time from which events are sent again."""
    try:
        day = date.fromisoformat(inputs.get(DAY_FIELD, "").strip())
    except ValueError:
        raise build_field_error(DAY_FIELD, "must be a date, such as 2026-11-22") from None
    time_text = read_text(inputs, TIME_FIELD)
    try:
        time_of_day = time() if time_text is None else time.fromisoformat(time_text)
    except ValueError:
        time_of_day = None
    if time_of_day is None or time_of_day.tzinfo is not None:
        raise build_field_error(TIME_FIELD, "must be a time, such as 14:30")
    return datetime.combine(day, time_of_day, UTC)


def _build_views(uow: UnitOfWork, endpoints: Sequence[WebhookEndpoint]) -> list[EndpointView]:
    titles = lists.read_titles(uow, [each.list_id for each in endpoints if each.list_id])
    return [EndpointView(each, titles.get(each.list_id or 0)) for each in endpoints]


def _find_view(uow: UnitOfWork, console: ConsoleRequest, endpoint_id: int) -> EndpointView:
    return EndpointView(webhook_endpoints.get_endpoint(uow, console.caller, endpoint_id))
