"""Creates, updates and deletes the webhook endpoints of owners.

An endpoint receives the events after its position in the feed. A paused or slow endpoint later
receives the events that it has missed. An event type that is added to an existing endpoint has its
own start position, so that the endpoint receives only later events of this type.
"""

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import ColumnElement, func, select, update

from core.errors import webhooks as errors
from core.ids import AccountId
from models import ApiKey, DeliveryStatus, EndpointState, WebhookDelivery, WebhookEndpoint
from services.access import api_keys, sessions
from services.access.caller import Caller
from services.access.event_types import list_visible_types
from services.accounts import account_mails, accounts
from services.accounts.account_mails import MailKind
from services.feed.catalogue import FeedEventType
from services.feed.reading import FeedPosition, newest_position, require_own_list
from services.security_events import EventType, record_event
from services.webhooks import signing
from storage.unit_of_work import UnitOfWork

MAX_ENDPOINTS = 20
PAUSED_BY_OWNER = "You paused this webhook."
ENDED_WITH_LOGIN = "The endpoint was disabled because the account's password was reset."


@dataclass(frozen=True)
class EndpointChange:
    """A setting that is ``None`` doesn't change."""

    url: str | None = None
    types: Collection[FeedEventType] | None = None
    state: EndpointState | None = None


def create_endpoint(
    uow: UnitOfWork,
    caller: Caller,
    *,
    url: str,
    types: Collection[FeedEventType],
    list_id: int | None,
) -> tuple[WebhookEndpoint, str]:
    """Notify the owner by mail, and return a secret that is shown only once.

    The caller must check whether the URL is allowed.
    """
    _require_types(caller, types)
    sessions.lock_caller(uow, caller)
    require_own_list(uow, caller.account_id, list_id)
    query = select(func.count()).where(
        WebhookEndpoint.user_id == caller.account_id, _is_not_deleted()
    )
    if (uow.session.scalar(query) or 0) >= MAX_ENDPOINTS:
        raise errors.WEBHOOK_TOO_MANY(most=MAX_ENDPOINTS)
    after = newest_position(uow.session)
    endpoint = WebhookEndpoint(
        user_id=caller.account_id,
        key_id=caller.key_id,
        url=url,
        types=sorted(set(types)),
        list_id=list_id,
        place=after.place,
        event_id=after.id,
    )
    uow.session.add(endpoint)
    uow.session.flush()
    secret = signing.create_secret(uow, endpoint.id)
    record_event(uow, caller.account_id, EventType.WEBHOOK_CREATED, endpoint_id=endpoint.id)
    _mail_owner(uow, caller)
    return endpoint, secret


def list_endpoints(uow: UnitOfWork, caller: Caller) -> list[WebhookEndpoint]:
    """Return the endpoints whose event types the credential may see, newest first."""
    visible = list_visible_types(caller)
    query = select(WebhookEndpoint).where(
        WebhookEndpoint.user_id == caller.account_id, _is_not_deleted()
    )
    rows = uow.session.scalars(query.order_by(WebhookEndpoint.id.desc()))
    return [row for row in rows if visible.issuperset(row.types)]


def get_endpoint(
    uow: UnitOfWork, caller: Caller, endpoint_id: int, *, lock: bool = False
) -> WebhookEndpoint:
    """Raise an error if the credential may not see the endpoint's event types."""
    query = select(WebhookEndpoint).where(
        WebhookEndpoint.id == endpoint_id,
        WebhookEndpoint.user_id == caller.account_id,
        _is_not_deleted(),
    )
    endpoint = uow.session.scalar(query.with_for_update() if lock else query)
    if endpoint is None:
        raise errors.WEBHOOK_ENDPOINT_NOT_FOUND()
    _require_types(caller, list_known_types(endpoint))
    return endpoint


def list_known_types(endpoint: WebhookEndpoint) -> list[FeedEventType]:
    return [FeedEventType(name) for name in endpoint.types if name in [*FeedEventType]]


def change_endpoint(
    uow: UnitOfWork, caller: Caller, endpoint_id: int, to: EndpointChange
) -> WebhookEndpoint:
    """Notify the owner by mail if the URL changes. The caller must check the new URL."""
    endpoint = _lock_for_maker(uow, caller, endpoint_id)
    if to.url is not None and to.url != endpoint.url:
        endpoint.url = to.url
        endpoint.key_id = caller.key_id
        # Reset the count of unanswered calls, because the receiver at the new URL may answer.
        endpoint.silences = 0
        endpoint.rests_until = None
        if endpoint.state == EndpointState.ACTIVE:
            wake_endpoint(endpoint)
        record_event(uow, caller.account_id, EventType.WEBHOOK_CHANGED, endpoint_id=endpoint.id)
        _mail_owner(uow, caller)
    if to.types is not None:
        _require_types(caller, to.types)
        # An added event type starts at the newest position in the feed, so that the endpoint gets
        # only future events.
        now = newest_position(uow.session).cursor
        starts = {kind: start for kind, start in endpoint.starts.items() if kind in to.types}
        added_starts = {kind.value: now for kind in to.types if kind not in endpoint.types}
        endpoint.starts = starts | added_starts
        endpoint.types = sorted(set(to.types))
    if to.state is not None and to.state != endpoint.state:
        _set_state(uow, caller, endpoint, to.state)
    uow.session.flush()
    return endpoint


def _lock_for_maker(uow: UnitOfWork, caller: Caller, endpoint_id: int) -> WebhookEndpoint:
    sessions.lock_caller(uow, caller)
    endpoint = get_endpoint(uow, caller, endpoint_id, lock=True)
    if endpoint.state == EndpointState.ENDED:
        raise errors.WEBHOOK_ENDED()
    return endpoint


def _set_state(
    uow: UnitOfWork, caller: Caller, endpoint: WebhookEndpoint, state: EndpointState
) -> None:
    if state is EndpointState.PAUSED:
        endpoint.state = state
        endpoint.reason = PAUSED_BY_OWNER
        endpoint.due_at = None
        return
    endpoint.state = state
    endpoint.reason = None
    endpoint.failing_since = None
    if endpoint.key_id is not None and not api_keys.is_active_key(uow, endpoint.key_id):
        # Replace an expired or revoked API key with the caller's key, because the endpoint would
        # otherwise be paused again.
        endpoint.key_id = caller.key_id
    endpoint.is_held = False
    wake_endpoint(endpoint)
    # Restart the retry schedule of pending deliveries, so that they don't fail permanently soon
    # after the endpoint's reactivation.
    table = WebhookDelivery
    statement = update(table).where(
        table.endpoint_id == endpoint.id, table.status == DeliveryStatus.PENDING
    )
    statement = statement.values(round_attempts=0, queued_at=func.now(), due_at=func.now())
    uow.session.execute(statement)


def rotate_secret(uow: UnitOfWork, caller: Caller, endpoint_id: int) -> str:
    endpoint = _lock_for_maker(uow, caller, endpoint_id)
    if signing.count_live_secrets(uow, endpoint.id) >= signing.MAX_LIVE_SECRETS:
        raise errors.WEBHOOK_TOO_MANY_SECRETS(most=signing.MAX_LIVE_SECRETS)
    return signing.create_secret(uow, endpoint.id)


def delete_endpoint(uow: UnitOfWork, caller: Caller, endpoint_id: int) -> int:
    """Deactivate the endpoint permanently, and hide it from its owner."""
    endpoint = get_endpoint(uow, caller, endpoint_id, lock=True)
    if endpoint.state != EndpointState.ENDED:
        record_event(uow, caller.account_id, EventType.WEBHOOK_ENDED, endpoint_id=endpoint.id)
    endpoint.state = EndpointState.ENDED
    endpoint.due_at = None
    endpoint.deleted_at = func.now()
    return 1


def lock_active_endpoint(uow: UnitOfWork, caller: Caller, endpoint_id: int) -> WebhookEndpoint:
    endpoint = get_endpoint(uow, caller, endpoint_id, lock=True)
    if endpoint.state != EndpointState.ACTIVE:
        raise errors.WEBHOOK_NOT_ACTIVE(state=endpoint.state)
    return endpoint


def wake_endpoint(endpoint: WebhookEndpoint) -> None:
    """Make a locked endpoint due, so that a worker sends its deliveries within a second."""
    endpoint.due_at = func.now()
    endpoint.rests_until = None


def list_live_endpoints(uow: UnitOfWork, account_id: AccountId) -> list[WebhookEndpoint]:
    return find_live_endpoints(uow, WebhookEndpoint.user_id == account_id)


def find_live_endpoints(uow: UnitOfWork, condition: ColumnElement[bool]) -> list[WebhookEndpoint]:
    query = select(WebhookEndpoint).where(condition, WebhookEndpoint.state != EndpointState.ENDED)
    return list(uow.session.scalars(query.order_by(WebhookEndpoint.id.desc())))


def end_all_endpoints(uow: UnitOfWork, account_id: AccountId, *, but: Collection[int] = ()) -> None:
    """End all endpoints that an intruder may have created, except ``but``."""
    end_endpoints(
        uow, account_id, {row.id for row in list_live_endpoints(uow, account_id)} - set(but)
    )


def end_endpoints(
    uow: UnitOfWork,
    account_id: AccountId,
    endpoint_ids: Collection[int],
    reason: str = ENDED_WITH_LOGIN,
) -> None:
    """Disable endpoints permanently, for example after an API key was revoked."""
    table = WebhookEndpoint
    statement = update(table).where(
        table.user_id == account_id,
        table.id.in_(sorted(endpoint_ids)),
        table.state != EndpointState.ENDED,
    )
    values = {"state": EndpointState.ENDED, "reason": reason, "due_at": None}
    ended_ids = uow.session.scalars(statement.values(values).returning(table.id)).all()
    if ended_ids:
        record_event(uow, account_id, EventType.WEBHOOK_ENDED, endpoints=len(ended_ids))


def get_position(endpoint: WebhookEndpoint) -> FeedPosition:
    return FeedPosition(endpoint.place, endpoint.event_id)


def get_type_starts(endpoint: WebhookEndpoint) -> dict[str, FeedPosition]:
    """Return start positions, which matter until the endpoint reaches them."""
    return {kind: FeedPosition.of_cursor(cursor) for kind, cursor in endpoint.starts.items()}


def rewind_endpoint(endpoint: WebhookEndpoint, to: FeedPosition) -> None:
    """Move a locked endpoint back in the feed, so that events after ``to`` are sent again."""
    position = min(get_position(endpoint), to)
    endpoint.place = position.place
    endpoint.event_id = position.id
    starts = get_type_starts(endpoint).items()
    endpoint.starts = {kind: min(start, to).cursor for kind, start in starts}


def _mail_owner(uow: UnitOfWork, caller: Caller) -> None:
    """Send only a limited number of mails per session or API key."""
    owner = accounts.get_owner(uow, caller.account_id)
    detail = "in a browser where you are logged in"
    if caller.key_id is not None:
        key = uow.session.get_one(ApiKey, caller.key_id)
        detail = f"with your API key that ends in {key.last_four}"
    limit = account_mails.HOURLY_LIMIT_PER_DETAIL
    account_mails.enqueue_mail(uow, MailKind.NEW_WEBHOOK, owner, detail, limit=limit)


def _is_not_deleted() -> ColumnElement[bool]:
    return WebhookEndpoint.deleted_at.is_(None)


def _require_types(caller: Caller, types: Collection[FeedEventType]) -> None:
    list_visible_types(caller, only=types)
