"""The webhook endpoints of owners: they are made, shown, changed, rotated and ended."""

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import ColumnElement, func, select, update

from core.errors import webhooks as errors
from models import ApiKey, DeliveryStatus, EndpointState, WebhookDelivery, WebhookEndpoint
from services.access import api_keys, sessions
from services.access.caller import Caller
from services.accounts import account_mails, accounts
from services.accounts.account_mails import MailKind
from services.feed.catalogue import FeedEventType, visible_types
from services.feed.reading import FeedPosition, newest_position, require_own_list
from services.security_events import EventType, record
from services.webhooks import signing
from storage.unit_of_work import UnitOfWork

# It is its position, but for a type that it got later: an endpoint that is behind, or paused,
# still gets what it missed of its other types, and none of the new one from before the change.


def position_of(endpoint: WebhookEndpoint) -> FeedPosition:
    return FeedPosition(endpoint.place, endpoint.event_id)


def later_starts(endpoint: WebhookEndpoint) -> dict[str, FeedPosition]:
    """The types of which the endpoint gets nothing before a position of their own.

    Such a position may be behind the endpoint's own by now, and means nothing then.
    """
    return {kind: FeedPosition.of_cursor(cursor) for kind, cursor in endpoint.starts.items()}


def go_back(endpoint: WebhookEndpoint, to: FeedPosition) -> None:
    """Have a locked endpoint get all events after the position that are of its types."""
    own = min(position_of(endpoint), to)
    endpoint.place, endpoint.event_id = own.place, own.id
    starts = later_starts(endpoint).items()
    endpoint.starts = {kind: min(start, to).cursor for kind, start in starts}


MAX_ENDPOINTS = 20
PAUSED_BY_OWNER = "Its owner paused it."
ENDED_WITH_LOGIN = "It ended when the account got another password."


@dataclass(frozen=True)
class EndpointChange:
    """Change what is given; ``None`` leaves a value as it is."""

    url: str | None = None
    types: Collection[FeedEventType] | None = None
    state: EndpointState | None = None


def make(
    uow: UnitOfWork,
    caller: Caller,
    *,
    url: str,
    types: Collection[FeedEventType],
    list_id: int | None,
) -> tuple[WebhookEndpoint, str]:
    """A new endpoint and its secret, which is shown once; a mail tells the person of it.

    It gets what happens from now on. The URL was checked by the caller of this function. Raises
    ``auth.login_again``, ``auth.insufficient_scope``, ``auth.restricted_credential``,
    ``list.not_found`` and ``webhook.too_many_endpoints``.
    """
    _require_types(caller, types)
    sessions.lock_maker(uow, caller)
    require_own_list(uow, caller.user_id, list_id)
    own = select(func.count()).where(WebhookEndpoint.user_id == caller.user_id, _is_there())
    if (uow.session.scalar(own) or 0) >= MAX_ENDPOINTS:
        raise errors.WEBHOOK_TOO_MANY(most=MAX_ENDPOINTS)
    after = newest_position(uow.session)
    endpoint = WebhookEndpoint(
        user_id=caller.user_id,
        key_id=caller.key_id,
        url=url,
        types=sorted(set(types)),
        list_id=list_id,
        place=after.place,
        event_id=after.id,
    )
    uow.session.add(endpoint)
    uow.session.flush()
    secret = signing.new_secret(uow, endpoint.id)
    record(uow, caller.user_id, EventType.WEBHOOK_CREATED, endpoint_id=endpoint.id)
    _mail(uow, caller)
    return endpoint, secret


def list_of(uow: UnitOfWork, caller: Caller) -> list[WebhookEndpoint]:
    """The caller's endpoints whose types the credential may see, newest first."""
    visible = visible_types(caller.scopes, unrestricted=caller.unrestricted)
    own = WebhookEndpoint.user_id == caller.user_id, _is_there()
    query = select(WebhookEndpoint).where(*own).order_by(WebhookEndpoint.id.desc())
    return [each for each in uow.session.scalars(query) if visible.issuperset(each.types)]


def get(
    uow: UnitOfWork, caller: Caller, endpoint_id: int, *, lock: bool = False
) -> WebhookEndpoint:
    """The caller's endpoint; raises ``webhook.endpoint_not_found``, and as ``make`` for types."""
    own = WebhookEndpoint.user_id == caller.user_id, _is_there()
    query = select(WebhookEndpoint).where(WebhookEndpoint.id == endpoint_id, *own)
    endpoint = uow.session.scalar(query.with_for_update() if lock else query)
    if endpoint is None:
        raise errors.WEBHOOK_ENDPOINT_NOT_FOUND()
    _require_types(caller, known_types(endpoint))
    return endpoint


def known_types(endpoint: WebhookEndpoint) -> list[FeedEventType]:
    """The endpoint's types without those of a later release."""
    return [FeedEventType(each) for each in endpoint.types if each in [*FeedEventType]]


def change(
    uow: UnitOfWork, caller: Caller, endpoint_id: int, to: EndpointChange
) -> WebhookEndpoint:
    """Change the endpoint; a new URL was checked by the caller of this function.

    A session needs a recent login, and a new URL is mailed, as for a new endpoint. Raises
    ``auth.login_again``, ``webhook.ended`` and what ``get`` raises.
    """
    endpoint = _lock_for_maker(uow, caller, endpoint_id)
    if to.url is not None and to.url != endpoint.url:
        endpoint.url, endpoint.key_id = to.url, caller.key_id
        # The faults of the receiver before are not its successor's.
        endpoint.silences, endpoint.rests_until = 0, None
        if endpoint.state == EndpointState.ACTIVE:
            wake(endpoint)
        record(uow, caller.user_id, EventType.WEBHOOK_CHANGED, endpoint_id=endpoint.id)
        _mail(uow, caller)
    if to.types is not None:
        _require_types(caller, to.types)
        # It gets what happens from now on of those that are new, or come back.
        now = newest_position(uow.session).cursor
        kept = {kind: start for kind, start in endpoint.starts.items() if kind in to.types}
        added = {kind.value: now for kind in to.types if kind not in endpoint.types}
        endpoint.starts = kept | added
        endpoint.types = sorted(set(to.types))
    if to.state is not None and to.state != endpoint.state:
        _set_state(uow, caller, endpoint, to.state)
    uow.session.flush()
    return endpoint


def rotate(uow: UnitOfWork, caller: Caller, endpoint_id: int) -> str:
    """A new secret, beside the former one for a day; raises also ``webhook.too_many_secrets``."""
    endpoint = _lock_for_maker(uow, caller, endpoint_id)
    if signing.count_live(uow, endpoint.id) >= signing.MAX_LIVE_SECRETS:
        raise errors.WEBHOOK_TOO_MANY_SECRETS(most=signing.MAX_LIVE_SECRETS)
    return signing.new_secret(uow, endpoint.id)


def _lock_for_maker(uow: UnitOfWork, caller: Caller, endpoint_id: int) -> WebhookEndpoint:
    sessions.lock_maker(uow, caller)
    endpoint = get(uow, caller, endpoint_id, lock=True)
    if endpoint.state == EndpointState.ENDED:
        raise errors.WEBHOOK_ENDED()
    return endpoint


def delete(uow: UnitOfWork, caller: Caller, endpoint_id: int) -> int:
    """End the endpoint and show it no more: nothing is sent from now on."""
    endpoint = get(uow, caller, endpoint_id, lock=True)
    if endpoint.state != EndpointState.ENDED:
        record(uow, caller.user_id, EventType.WEBHOOK_ENDED, endpoint_id=endpoint.id)
    endpoint.state, endpoint.due_at = EndpointState.ENDED, None
    endpoint.deleted_at = func.now()
    return 1


def lock_active(uow: UnitOfWork, caller: Caller, endpoint_id: int) -> WebhookEndpoint:
    """As ``get``, with its lock; raises ``webhook.not_active`` too."""
    endpoint = get(uow, caller, endpoint_id, lock=True)
    if endpoint.state != EndpointState.ACTIVE:
        raise errors.WEBHOOK_NOT_ACTIVE(state=endpoint.state)
    return endpoint


def wake(endpoint: WebhookEndpoint) -> None:
    """Have a worker look at a locked endpoint within about a second: it rests no longer."""
    endpoint.due_at, endpoint.rests_until = func.now(), None


def live_of(uow: UnitOfWork, user_id: int) -> list[WebhookEndpoint]:
    """The person's endpoints to which something is sent, or may be, newest first."""
    return live_where(uow, WebhookEndpoint.user_id == user_id)


def live_where(uow: UnitOfWork, condition: ColumnElement[bool]) -> list[WebhookEndpoint]:
    query = select(WebhookEndpoint).where(condition, WebhookEndpoint.state != EndpointState.ENDED)
    return list(uow.session.scalars(query.order_by(WebhookEndpoint.id.desc())))


def end_all(uow: UnitOfWork, user_id: int, *, but: Collection[int] = ()) -> None:
    """End the person's endpoints, since another person may have made them."""
    end(uow, user_id, {each.id for each in live_of(uow, user_id)} - set(but))


def end(
    uow: UnitOfWork, user_id: int, endpoint_ids: Collection[int], reason: str = ENDED_WITH_LOGIN
) -> None:
    """End these of the person's endpoints, together with what their makers had."""
    row = WebhookEndpoint
    live = row.id.in_(sorted(endpoint_ids)), row.state != EndpointState.ENDED
    ending = update(row).where(row.user_id == user_id, *live).returning(row.id)
    over = {"state": EndpointState.ENDED, "reason": reason, "due_at": None}
    ended = uow.session.scalars(ending.values(over)).all()
    if ended:
        record(uow, user_id, EventType.WEBHOOK_ENDED, endpoints=len(ended))


def _set_state(
    uow: UnitOfWork, caller: Caller, endpoint: WebhookEndpoint, state: EndpointState
) -> None:
    if state is EndpointState.PAUSED:
        endpoint.state, endpoint.reason, endpoint.due_at = state, PAUSED_BY_OWNER, None
        return
    endpoint.state, endpoint.reason, endpoint.failing_since = state, None, None
    if endpoint.key_id is not None and not api_keys.is_open(uow, endpoint.key_id):
        # Its key would pause it again.
        endpoint.key_id = caller.key_id
    endpoint.is_held = False
    wake(endpoint)
    # Deliveries that it did not get are tried anew: the pauses and the three days begin again.
    row = WebhookDelivery
    pending = row.endpoint_id == endpoint.id, row.status == DeliveryStatus.PENDING
    again = update(row).where(*pending).values(round_attempts=0, queued_at=func.now())
    uow.session.execute(again.values(due_at=func.now()))


def _mail(uow: UnitOfWork, caller: Caller) -> None:
    """Tell the person which credential did it, within a limit of that credential's own."""
    person = accounts.get(uow, caller.user_id)
    detail = "in a browser in which you are logged in"
    if caller.key_id is not None:
        key = uow.session.get_one(ApiKey, caller.key_id)
        detail = f"by your API key that ends in {key.last_four}"
    kind = MailKind.NEW_WEBHOOK
    if not account_mails.got_enough(uow, kind, person.email, detail=detail):
        account_mails.mail_person(uow, kind, person, detail)


def _require_types(caller: Caller, types: Collection[FeedEventType]) -> None:
    visible_types(caller.scopes, unrestricted=caller.unrestricted, only=types)


def _is_there() -> ColumnElement[bool]:
    return WebhookEndpoint.deleted_at.is_(None)
