from fastapi import APIRouter, Request, Response

from api.access.requirements import AnyCaller, UnrestrictedCaller
from api.bodies.json_route import JsonRoute
from api.limits.bulkheads import RECORDS
from api.openapi import array_pages, refuses
from api.parameters import ArrayPaging, Cursor, Limit, PathId, StateOf, link_next
from api.request_ids import current_request_id
from api.schemas.accounts import (
    ApiKeyRecord,
    CreatedApiKey,
    EventsPagination,
    NewApiKey,
    SecurityEvent,
    SecurityEventsPage,
    UserChanges,
    UserRecord,
)
from api.schemas.envelope import Envelope, envelope
from core.refusals.access import (
    API_KEY_EXPIRY,
    API_KEY_NOT_FOUND,
    AUTH_LOGIN_AGAIN,
    AUTH_SCOPE_NOT_GRANTABLE,
    QUOTA_EXCEEDED,
)
from core.refusals.requests import CURSOR_INVALID
from services.access import api_keys, quotas
from services.events import event_reading
from services.paging import PageRequest
from services.people import accounts, own_keys

router = APIRouter(tags=["Accounts"], route_class=JsonRoute)


@router.get("/users/me")
@RECORDS.threaded
def read_me(state: StateOf, caller: AnyCaller) -> Envelope[UserRecord]:
    """The user to whom the credentials belong, and how much of their plan's quotas is used."""
    with state.resources.unit_of_work() as uow:
        user = accounts.get(uow, caller.user_id)
        used = quotas.uses(uow, state.resources.settings, user)
        return envelope(UserRecord.of_row(user, quotas=used))


@router.patch("/users/me")
@RECORDS.threaded
def change_me(
    state: StateOf, caller: UnrestrictedCaller, body: UserChanges
) -> Envelope[UserRecord]:
    """Change the settings that the body names; the others stay."""
    with state.resources.unit_of_work() as uow:
        user = accounts.get(uow, caller.user_id)
        for name, value in body.sent().items():
            setattr(user, name, value)
        uow.session.flush()
        uow.session.refresh(user)
        used = quotas.uses(uow, state.resources.settings, user)
        return envelope(UserRecord.of_row(user, quotas=used))


@router.get("/users/me/security-events", responses=refuses(CURSOR_INVALID))
@RECORDS.threaded
def list_security_events(
    state: StateOf, caller: UnrestrictedCaller, limit: Limit = 50, cursor: Cursor = None
) -> Envelope[SecurityEventsPage]:
    """What happened to the account in the last year, newest first: logins and failed logins,
    credentials that were made or ended, exports, and what the plan refused."""
    wanted = PageRequest(limit, cursor=cursor)
    with state.resources.unit_of_work() as uow:
        found = event_reading.page(uow, caller.user_id, wanted)
    pagination = EventsPagination(limit=limit, next_cursor=found.next_cursor)
    items = [SecurityEvent.of(event) for event in found.rows]
    return envelope(SecurityEventsPage(pagination=pagination, items=items))


@router.post(
    "/apikeys",
    responses=refuses(AUTH_SCOPE_NOT_GRANTABLE, AUTH_LOGIN_AGAIN, QUOTA_EXCEEDED, API_KEY_EXPIRY),
)
@RECORDS.threaded
def create_api_key(
    state: StateOf, caller: UnrestrictedCaller, body: NewApiKey
) -> Envelope[CreatedApiKey]:
    """Make an API key. The key itself is in this answer and never shown again.

    A session needs a login of the last 15 minutes. A key that another key makes ends with it.
    """
    with state.resources.unit_of_work() as uow:
        key, secret = own_keys.make(
            uow,
            state.resources.settings,
            caller,
            name=body.name,
            scopes=body.scopes,
            expires_at=body.expires_at,
            request_id=current_request_id(),
        )
        record = ApiKeyRecord.model_validate(key)
    return envelope(CreatedApiKey(**record.model_dump(), key=secret))


@router.get("/apikeys", responses=array_pages())
@RECORDS.threaded
def list_api_keys(
    request: Request,
    response: Response,
    state: StateOf,
    caller: UnrestrictedCaller,
    paging: ArrayPaging,
) -> Envelope[list[ApiKeyRecord]]:
    """The caller's API keys, newest first, revoked ones too."""
    with state.resources.unit_of_work() as uow:
        keys = api_keys.list_of(uow, caller.user_id, paging)
        records = [ApiKeyRecord.model_validate(key) for key in keys.rows]
    link_next(request, response, keys)
    return envelope(records)


@router.delete("/apikeys/{key_id}", responses=refuses(API_KEY_NOT_FOUND))
@RECORDS.threaded
def revoke_api_key(state: StateOf, caller: UnrestrictedCaller, key_id: PathId) -> Envelope[int]:
    """Revoke an API key, from the next request on: 1, or 0 when it was revoked before."""
    with state.resources.unit_of_work() as uow:
        return envelope(api_keys.revoke(uow, key_id=key_id, user_id=caller.user_id))
