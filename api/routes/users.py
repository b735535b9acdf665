"""The API endpoints for a user's own account, API keys and grants."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from api.auth.requirements import AnyCaller, GrantKeeper, KeyKeeper, UnrestrictedPerson
from api.openapi.declarations import array_page_responses, error_responses
from api.paging import ArrayPaging, Cursor, Limit, link_next_page
from api.record_ids import PathId
from api.route_classes import JsonRoute
from api.schemas import users as schemas
from api.schemas.accounts import AccountRecord
from api.schemas.envelope import Envelope, build_envelope, fill_page
from api.schemas.oauth import GrantRecord
from api.state import Transaction
from core.errors import access, mailing, requests
from models import User
from services import security_events
from services.access import api_keys, api_requests, quotas
from services.access.caller import Caller
from services.accounts import accounts, own_keys, teams
from services.oauth import grants
from services.paging import PageRequest
from services.senders.senders_of_keys import revoke_key
from storage.unit_of_work import UnitOfWork

KeepEndpoints = Annotated[
    bool, Query(description="Whether to keep the webhook endpoints and senders of the key")
]
RequestStatus = Annotated[
    str | None,
    Query(
        pattern=api_requests.STATUS_PATTERN,
        description="A status such as `429`, or a class of statuses such as `4xx`",
    ),
]

router = APIRouter(tags=["Accounts"], route_class=JsonRoute)


@router.get("/users/me", summary="Retrieve your user account")
def read_me(uow: Transaction, caller: AnyCaller) -> Envelope[schemas.UserRecord]:
    """Retrieve the user of the credential, and the used and available quotas of the plan."""
    return build_envelope(_build_record(uow, caller, accounts.get_user(uow, caller.person_id)))


@router.patch("/users/me", summary="Update your settings")
def change_me(
    uow: Transaction, caller: UnrestrictedPerson, body: schemas.UserChanges
) -> Envelope[schemas.UserRecord]:
    """Update your settings. Settings that the request omits don't change."""
    person = accounts.get_user(uow, caller.person_id)
    for name, value in body.sent().items():
        setattr(person, name, value)
    uow.session.flush()
    uow.session.refresh(person)
    return build_envelope(_build_record(uow, caller, person))


def _build_record(uow: UnitOfWork, caller: Caller, person: User) -> schemas.UserRecord:
    account = accounts.get_account(uow, caller.account_id)
    uses = quotas.list_uses(uow, account)
    return schemas.UserRecord.of_row(
        person,
        plan=account.plan,
        quotas=uses,
        account=AccountRecord.model_validate(teams.describe_account(uow, caller)),
    )


@router.get(
    "/users/me/security-events",
    summary="List security events",
    responses=error_responses(requests.CURSOR_INVALID),
)
def list_security_events(
    uow: Transaction, caller: UnrestrictedPerson, limit: Limit = 50, cursor: Cursor = None
) -> Envelope[schemas.SecurityEventsPage]:
    """List the security events of your account in the last year, newest first. Security events
    include logins, failed logins, created and revoked credentials, exports, and requests that
    the plan rejected.
    """
    page_request = PageRequest(limit, cursor=cursor)
    read = partial(security_events.list_events, uow, caller.person_id, known_only=True)
    page = fill_page(page_request, read, lambda rows: [*map(schemas.SecurityEvent.of, rows)])
    pagination = schemas.EventsPagination(limit=limit, next_cursor=page.next_cursor)
    return build_envelope(schemas.SecurityEventsPage(pagination=pagination, items=page.rows))


@router.post(
    "/apikeys",
    summary="Create an API key",
    responses=error_responses(
        access.AUTH_DELIVERY_LISTS_MISSING,
        access.AUTH_DELIVERY_FORBIDDEN,
        access.AUTH_SESSION_NEEDED,
        access.AUTH_LOGIN_AGAIN,
        access.QUOTA_EXCEEDED,
        access.API_KEY_LISTS,
        access.API_KEY_EXPIRY,
        mailing.LIST_NOT_FOUND,
    ),
)
def create_api_key(
    uow: Transaction, caller: KeyKeeper, body: schemas.NewApiKey
) -> Envelope[schemas.CreatedApiKey]:
    """Create an API key. Only the response to this request contains the key.

    Callers with a session cookie must have logged in within the last 15 minutes. If an API key
    creates another key, the new key expires no later than the first key, and is revoked with the
    first key.

    Only a session can create a key with the scope `delivery`. Such a key exports the rosters of the
    lists in `list_ids`, and mails their members. Its trace ids only let people leave.
    """
    key, secret = own_keys.create_own_key(
        uow,
        caller,
        name=body.name,
        scopes=body.scopes,
        list_ids=body.list_ids,
        expires_at=body.expires_at,
    )
    return build_envelope(schemas.CreatedApiKey.of_row(key, key=secret))


@router.get("/apikeys", summary="List all API keys", responses=array_page_responses())
def list_api_keys(
    request: Request,
    response: Response,
    uow: Transaction,
    caller: KeyKeeper,
    paging: ArrayPaging,
) -> Envelope[list[schemas.ApiKeyRecord]]:
    """List your API keys, newest first. Revoked keys are included."""
    keys = api_keys.list_keys(uow, caller.account_id, paging)
    records = [schemas.ApiKeyRecord.model_validate(key) for key in keys.rows]
    link_next_page(request, response, keys)
    return build_envelope(records)


@router.delete(
    "/apikeys/{key_id}",
    summary="Revoke an API key",
    responses=error_responses(access.API_KEY_NOT_FOUND),
)
def revoke_api_key(
    uow: Transaction,
    caller: KeyKeeper,
    key_id: PathId,
    *,
    keep_endpoints: KeepEndpoints = False,
) -> Envelope[int]:
    """Revoke an API key immediately. Returns 1, or 0 if the key was already revoked.

    API keys that the revoked key created are also revoked. The webhook endpoints of all revoked
    keys are permanently disabled, and their senders are deleted, unless you set `keep_endpoints=1`.
    """
    revoked = revoke_key(
        uow, key_id=key_id, account_id=caller.account_id, keep_endpoints=keep_endpoints
    )
    return build_envelope(revoked)


@router.get(
    "/apikeys/{key_id}/requests",
    summary="List an API key's requests",
    responses=error_responses(access.API_KEY_NOT_FOUND, requests.CURSOR_INVALID),
)
def list_api_key_requests(
    uow: Transaction,
    caller: KeyKeeper,
    key_id: PathId,
    limit: Limit = 50,
    cursor: Cursor = None,
    status: RequestStatus = None,
) -> Envelope[schemas.ApiRequestsPage]:
    """List the last 1,000 requests of an API key within the last 7 days, newest first.

    Requests appear after about two seconds. Paths, queries and bodies aren't recorded, and neither
    are requests with a revoked or expired key. Revoking the key deletes its requests.
    """
    read = partial(api_requests.list_requests, uow, caller.account_id, key_id, status=status)
    page = fill_page(
        PageRequest(limit, cursor=cursor),
        read,
        lambda rows: [*map(schemas.ApiRequestRecord.model_validate, rows)],
    )
    pagination = schemas.ApiRequestsPagination(limit=limit, next_cursor=page.next_cursor)
    return build_envelope(schemas.ApiRequestsPage(pagination=pagination, items=page.rows))


grants_router = APIRouter(tags=["OAuth"], route_class=JsonRoute)


@grants_router.get("/grants", summary="List all grants", responses=array_page_responses())
def list_grants(
    request: Request,
    response: Response,
    uow: Transaction,
    caller: GrantKeeper,
    paging: ArrayPaging,
) -> Envelope[list[GrantRecord]]:
    """List the apps that can access your account, ordered by newest consent first."""
    page = grants.list_grants(uow, caller, paging)
    link_next_page(request, response, page)
    return build_envelope([GrantRecord.model_validate(grant) for grant in page.rows])


@grants_router.delete(
    "/grants/{grant_id}",
    summary="Revoke a grant",
    responses=error_responses(access.GRANT_NOT_FOUND),
)
def revoke_grant(uow: Transaction, caller: GrantKeeper, grant_id: PathId) -> Envelope[int]:
    """Revoke a grant and all its tokens immediately. Returns 1, or 0 if the grant was already
    revoked.
    """
    return build_envelope(grants.revoke_grant(uow, caller, grant_id))
