"""The API endpoints for a person's own subscriptions.

The person is identified by a login or by a trace id from a mail. ``api.sign_up`` contains the route
with which people without a login subscribe.
"""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from api.auth import actors
from api.auth.actors import Principal
from api.auth.engagement import store_answer
from api.auth.requirements import requires_scope, requires_scope_or_trace
from api.bodies.form_or_json import FormOrJsonBody, FormOrJsonBodyOf
from api.bodies.multipart import MULTIPART
from api.bodies.url_encoded_forms import FORM
from api.limits.bulkheads import LEAVING
from api.limits.keyed_bulkheads import CHANGES_BY_LIST, threaded_by_list
from api.openapi.declarations import array_page_responses, error_responses
from api.paging import ArrayPaging, link_next_page
from api.record_ids import ListId, PathId
from api.responses.lists import describe_list, describe_lists
from api.route_classes import JsonRoute
from api.schemas.envelope import Envelope, build_envelope
from api.schemas.subscriptions import (
    Opponent,
    OwnSubmission,
    SubscriptionRecord,
)
from api.state import State, StateOf, Transaction
from core.errors import DomainError, mailing, requests
from core.scopes import Scope
from models import OptOutKind
from services.access.caller import Caller
from services.accounts import accounts
from services.subscriptions import lists, member_attributes, sign_up
from services.subscriptions.members import person_subscriptions
from services.subscriptions.members import unsubscribe as leaving
from services.subscriptions.members.changes import Via
from services.subscriptions.members.email_offs import find_email_off, find_email_offs
from services.subscriptions.members.engagement_views import read_view, read_views

router = APIRouter(tags=["Subscriptions"], route_class=JsonRoute)

# The callers of these types act on their own subscriptions, and need no permission.
SubscriptionReader = Annotated[Caller, requires_scope(Scope.SUBSCRIPTION_READ, None)]
SubscriptionEditor = Annotated[Caller, requires_scope(Scope.SUBSCRIPTION_FULL, None)]
TRACE_OR_FULL_SCOPE = requires_scope_or_trace(Scope.SUBSCRIPTION_FULL)

# The count that every request with a trace id returns, so that the response doesn't reveal whether
# the person subscribes to the list.
ACCEPTED_COUNT = 1

_TRACE_ERRORS = (
    mailing.TRACE_AMBIGUOUS,
    requests.BODY_NOT_JSON,
    requests.BODY_NO_JSON_OR_FORM_TYPE,
    requests.BODY_INVALID.fill(place="body.trace_id", rule="must be a string"),
    mailing.LIST_NOT_FOUND,
)


def _describe_body(**properties: Any) -> dict[str, Any]:
    """Return the ``openapi_extra`` of a route whose body has ``properties``, in JSON or a form."""
    trace_id = {
        "type": "string",
        "description": "The trace id, as an alternative to the query parameter",
        "examples": ["1AAAAAAAEEgAAAABMxF8AAAAAAAC8VQ.k1.BwgJCgsMDQ4PEBESExQVFg"],
    }
    schema = {"type": "object", "properties": {**properties, "trace_id": trace_id}}
    kinds = ("application/json", FORM, MULTIPART)
    return {"requestBody": {"content": {kind: {"schema": schema} for kind in kinds}}}


@router.post(
    "/subscriptions/{list_id}/no-challenge",
    summary="Subscribe yourself",
    responses=error_responses(
        mailing.LIST_NOT_FOUND, mailing.MEMBER_DENIED, mailing.LIST_BUSY, mailing.FIELD_VALUE
    ),
)
@threaded_by_list
def subscribe_me(
    request: Request,
    uow: Transaction,
    caller: SubscriptionEditor,
    list_id: ListId,
    body: OwnSubmission | None = None,
) -> Envelope[int]:
    """Subscribe the caller to a list, even if the caller left the list before.

    Returns 1, or 0 if nothing changed. The request can set the public fields of the list's owner.
    """
    person = accounts.get_user(uow, caller.person_id)
    actor = actors.build_principal_actor(request, Principal(person.id, Via.LOGIN, None))
    mailing_list = lists.get_list(uow, list_id)
    values = {} if body is None else body.fields
    attributes = member_attributes.read_submission(uow, mailing_list.user_id, values=values)
    return build_envelope(
        sign_up.subscribe_person(uow, mailing_list, person, actor, submission=attributes)
    )


@router.delete(
    "/subscriptions/{list_id}",
    summary="Unsubscribe from a list",
    dependencies=[TRACE_OR_FULL_SCOPE],
    openapi_extra=_describe_body(),
    responses=error_responses(mailing.LIST_NAME_INVALID, *_TRACE_ERRORS),
)
@LEAVING.threaded
def unsubscribe(
    request: Request, state: StateOf, list_id: str, submission: FormOrJsonBodyOf
) -> Envelope[int]:
    """Unsubscribe the person of the trace id, or the caller, from a list.

    Always returns 1. Afterwards, only the person can subscribe again. Neither the owner nor an
    import can add the person.
    """
    principal = actors.identify_principal(request, state, submission, Scope.SUBSCRIPTION_FULL)
    with state.resources.unit_of_work() as uow:
        mailing_list = lists.get_named(uow, list_id, archived=True)
        person = principal.find_person(uow, mailing_list)
    if person is not None:
        actor = actors.build_principal_actor(request, principal)
        leaving.opt_out(state.resources, mailing_list, person, OptOutKind.LIST, actor)
    return build_envelope(ACCEPTED_COUNT)


@router.put(
    "/subscriptions/{list_id}/email",
    summary="Turn your mail on or off",
    dependencies=[TRACE_OR_FULL_SCOPE],
    openapi_extra=_describe_body(enabled={"type": "boolean", "examples": [False]}),
    responses=error_responses(*_TRACE_ERRORS, mailing.LIST_BUSY),
)
async def set_email_enabled(
    request: Request, state: StateOf, list_id: ListId, submission: FormOrJsonBodyOf
) -> Envelope[int]:
    """Turn the mail of a list on or off for the person of the trace id or the caller. Always
    returns 1.
    """
    await _switch(_set_email, request, state, list_id, submission)
    return build_envelope(ACCEPTED_COUNT)


async def _switch(
    change: Callable[..., None],
    request: Request,
    state: State,
    list_id: int,
    submission: FormOrJsonBody,
) -> None:
    """Run a change that is an opt-out if ``enabled`` is false."""
    try:
        is_enabling = submission.read_boolean("enabled")
    except DomainError:
        # Ignore an invalid value of ``enabled`` here, because ``change`` raises the error after
        # checking the credentials.
        is_enabling = False
    call = partial(change, request, state, list_id, submission)
    await (CHANGES_BY_LIST.run(list_id, call) if is_enabling else LEAVING.run(call))


@router.put(
    "/subscriptions/{list_id}/engagement",
    summary="Allow or refuse to record your engagement",
    dependencies=[TRACE_OR_FULL_SCOPE],
    openapi_extra=_describe_body(enabled={"type": "boolean", "examples": [False]}),
    responses=error_responses(*_TRACE_ERRORS, mailing.LIST_BUSY),
)
async def set_engagement(
    request: Request, state: StateOf, list_id: ListId, submission: FormOrJsonBodyOf
) -> Envelope[int]:
    """Say whether a list may record opens and clicks of the trace id's person or the caller. Always
    returns 1. A no deletes the list's counts about the person.
    """
    await _switch(_set_engagement, request, state, list_id, submission)
    return build_envelope(ACCEPTED_COUNT)


@router.post(
    "/subscriptions/{list_id}/delete",
    summary="Turn off your mail with one click",
    dependencies=[TRACE_OR_FULL_SCOPE],
    openapi_extra=_describe_body(
        **{"List-Unsubscribe": {"type": "string", "examples": ["One-Click"]}}
    ),
    responses=error_responses(*_TRACE_ERRORS),
)
@LEAVING.threaded
def disable_email(
    request: Request, state: StateOf, list_id: ListId, submission: FormOrJsonBodyOf
) -> Envelope[int]:
    """Turn off the mail of a list with one click (RFC 8058) for the person of the trace id. Always
    returns 1.
    """
    principal = actors.identify_principal(request, state, submission, Scope.SUBSCRIPTION_FULL)
    _disable_email(request, state, list_id, principal)
    return build_envelope(ACCEPTED_COUNT)


def _set_email(request: Request, state: State, list_id: int, submission: FormOrJsonBody) -> None:
    principal = actors.identify_principal(request, state, submission, Scope.SUBSCRIPTION_FULL)
    if not submission.read_boolean("enabled"):
        _disable_email(request, state, list_id, principal)
        return
    with state.resources.unit_of_work() as uow:
        mailing_list = lists.get_list(uow, list_id, archived=True)
        person = principal.get_person(uow, mailing_list)
        actor = actors.build_principal_actor(request, principal)
        leaving.set_email(uow, mailing_list, person, actor, enabled=True)


def _set_engagement(
    request: Request, state: State, list_id: int, submission: FormOrJsonBody
) -> None:
    principal = actors.identify_principal(request, state, submission, Scope.SUBSCRIPTION_FULL)
    is_allowed = submission.read_boolean("enabled")
    store_answer(request, state, list_id, principal, is_allowed=is_allowed)


def _disable_email(request: Request, state: State, list_id: int, principal: Principal) -> None:
    with state.resources.unit_of_work() as uow:
        mailing_list = lists.get_list(uow, list_id, archived=True)
        person = principal.find_person(uow, mailing_list)
    if person is not None:
        actor = actors.build_principal_actor(request, principal)
        leaving.opt_out(state.resources, mailing_list, person, OptOutKind.EMAIL, actor)


@router.get(
    "/subscriptions/{list_id}/rel",
    summary="Retrieve your subscription",
    responses=error_responses(
        mailing.LIST_NAME_INVALID, mailing.LIST_NOT_FOUND, mailing.SUBSCRIPTION_NOT_FOUND
    ),
)
def read_my_subscription(
    state: StateOf, uow: Transaction, caller: SubscriptionReader, list_id: str
) -> Envelope[SubscriptionRecord]:
    """Retrieve the caller's subscription to a list, in any status."""
    mailing_list = lists.get_named(uow, list_id, archived=True)
    record = person_subscriptions.get_own_subscription(uow, mailing_list.id, caller.person_id)
    channel = describe_list(uow, state, mailing_list)
    email_off = find_email_off(uow, record)
    view = read_view(uow, record)
    return build_envelope(SubscriptionRecord.of(record, email_off, view, list=channel))


@router.get("/subscriptions", summary="List your subscriptions", responses=array_page_responses())
def list_my_subscriptions(
    request: Request,
    response: Response,
    state: StateOf,
    uow: Transaction,
    caller: SubscriptionReader,
    paging: ArrayPaging,
) -> Envelope[list[SubscriptionRecord]]:
    """List the caller's subscriptions, newest first. Pending subscriptions are included."""
    page = person_subscriptions.list_subscriptions(uow, caller.person_id, paging)
    channels = describe_lists(uow, state, [mailing_list for _, mailing_list in page.rows])
    email_offs = find_email_offs(uow, [record for record, _ in page.rows])
    views = read_views(uow, [record for record, _ in page.rows])
    records = [
        SubscriptionRecord.of(record, email_offs.get(record.id), views.get(record.id), list=channel)
        for (record, _), channel in zip(page.rows, channels, strict=True)
    ]
    link_next_page(request, response, page)
    return build_envelope(records)


@router.get(
    "/subscriptions/opponent",
    summary="Retrieve a list with your subscription",
    dependencies=[requires_scope_or_trace(Scope.SUBSCRIPTION_READ)],
    responses=error_responses(
        mailing.LIST_ID_MISSING, *_TRACE_ERRORS, mailing.SUBSCRIPTION_NOT_FOUND
    ),
)
def read_opponent(
    request: Request,
    state: StateOf,
    uow: Transaction,
    submission: FormOrJsonBodyOf,
    list_id: Annotated[
        PathId | None, Query(description="The id of the list, required without a trace id")
    ] = None,
) -> Envelope[Opponent]:
    """Retrieve a list and the subscription of the trace id's person or of the caller.

    With a trace id, the address is masked, and name, user id and paid_expiry are null, because
    readers may forward e-mails with their links.
    """
    principal = actors.identify_principal(request, state, submission, Scope.SUBSCRIPTION_READ)
    if list_id is None and principal.trace:
        list_id = principal.trace.list_id
    if list_id is None:
        raise mailing.LIST_ID_MISSING()
    mailing_list = lists.get_list(uow, list_id, archived=True)
    person = principal.get_person(uow, mailing_list)
    record = person_subscriptions.get_own_subscription(uow, mailing_list.id, person.id)
    channel = describe_list(uow, state, mailing_list)
    view = None if principal.trace else read_view(uow, record)
    subscription = SubscriptionRecord.of(record, find_email_off(uow, record), view)
    if principal.trace:
        subscription = subscription.masked()
    return build_envelope(Opponent(list=channel, sub=subscription))
