"""Subscriptions for the subscribers themselves, and the public form for strangers."""

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from api.access import actors
from api.access.actors import Principal
from api.access.answer_timing import padded_duration
from api.access.browsers import client_address
from api.access.requirements import PUBLIC, ListEditor, ListReader, requires_scope_or_trace
from api.bodies.forms import FormOrJsonBody, FormOrJsonBodyOf
from api.bodies.json_route import JsonRoute
from api.bodies.media_types import FORM, MULTIPART
from api.limits.bulkheads import LEAVING, RECORDS
from api.limits.shares import ACTS_BY_LIST
from api.list_answers import list_response, list_responses
from api.openapi import refuses
from api.parameters import PathId, StateOf
from api.schemas.envelope import Envelope, envelope
from api.schemas.subscriptions import NewSubscription, Opponent, SubscriptionRecord
from api.state import State
from core.errors import DomainError, FieldProblem
from core.refusals import mailing, requests
from core.scopes import Scope
from integrations.challenges.port import (
    Challenge,
    ChallengeAction,
    ChallengeProviderName,
    ChallengeResponse,
)
from models import MailingList, OptOutKind
from services.mailing import lists
from services.mailing.subscriptions import own
from services.mailing.subscriptions import subscribe as joining
from services.mailing.subscriptions import unsubscribe as leaving
from services.people import accounts
from storage.unit_of_work import UnitOfWork

router = APIRouter(tags=["Subscriptions"], route_class=JsonRoute)

BY_TRACE = requires_scope_or_trace(Scope.SUBSCRIPTION_FULL)

# The answer of calls without credentials, whatever they changed: no caller learns who subscribes.
ACCEPTED = 1

_TRACE_REFUSALS = (
    mailing.TRACE_AMBIGUOUS,
    requests.BODY_NOT_JSON,
    requests.BODY_NO_JSON_OR_FORM_TYPE,
    requests.BODY_INVALID.filled(place="body.trace_id", rule="must be a string"),
    mailing.LIST_NOT_FOUND,
)


def _body(**properties: Any) -> dict[str, Any]:
    """``openapi_extra`` of a body that may be JSON or a form."""
    trace_id = {
        "type": "string",
        "description": "Instead of the query parameter",
        "examples": ["k1.AbCdEf0123456789.ZyXwVu9876543210"],
    }
    schema = {"type": "object", "properties": {**properties, "trace_id": trace_id}}
    kinds = ("application/json", FORM, MULTIPART)
    return {"requestBody": {"content": {kind: {"schema": schema} for kind in kinds}}}


@router.post(
    "/subscriptions/{list_id}",
    dependencies=[PUBLIC],
    responses=refuses(
        mailing.LIST_NOT_FOUND,
        mailing.CHALLENGE_FAILED,
        mailing.CHALLENGE_MISSING,
        mailing.CHALLENGE_PROVIDER_MISMATCH,
        mailing.CHALLENGE_UNAVAILABLE,
        mailing.CHALLENGE_NOT_CONFIGURED,
        mailing.LIST_BUSY,
    ),
)
async def subscribe(
    request: Request, state: StateOf, list_id: PathId, body: NewSubscription
) -> Envelope[int]:
    """Subscribe an address, as a stranger. Always 1, also for an address that is subscribed.

    A list with a challenge needs the three challenge fields; the action is `subscribe`. If the list
    requires confirmation, or had the person before, or they opted out of it, the subscription is
    pending until a person confirms the link that is mailed to the address. A caller with
    credentials calls `/no-challenge` instead.
    """
    mailing_list = await state.in_unit_of_work(partial(lists.get, list_id=list_id))
    if mailing_list.challenge_enabled:
        challenge, answer = _challenge(request, state, mailing_list, body)
        await challenge.check(answer)
    actor = actors.stranger_actor(request)
    resources = state.resources

    def request_subscription(uow: UnitOfWork) -> None:
        mailing_list = lists.get(uow, list_id)
        joining.request(
            uow, resources.keyring, mailing_list, body.email, actor, settings=resources.settings
        )

    async with padded_duration():
        await ACTS_BY_LIST.run(list_id, state.transact, request_subscription)
    return envelope(ACCEPTED)


def _challenge(
    request: Request, state: State, mailing_list: MailingList, body: NewSubscription
) -> tuple[Challenge, ChallengeResponse]:
    provider, token = body.challenge_provider, body.challenge_token
    if not provider or not token or not body.challenge_action:
        problems = tuple(
            FieldProblem(f"body.{field.alias}", "missing", "is required for this list")
            for name, field in NewSubscription.model_fields.items()
            if name.startswith("challenge") and not getattr(body, name)
        )
        rules = "; ".join(f"{each.field}: {each.message}" for each in problems)
        raise mailing.CHALLENGE_MISSING(rules=rules, problems=problems)
    if provider != mailing_list.challenge_provider:
        raise mailing.CHALLENGE_PROVIDER_MISMATCH(provider=mailing_list.challenge_provider)
    # A token that was made for something else is no token for this.
    if body.challenge_action != ChallengeAction.SUBSCRIBE:
        raise mailing.CHALLENGE_FAILED()
    answer = ChallengeResponse(token, ChallengeAction.SUBSCRIBE, client_address(request))
    return state.challenges.challenge_for(ChallengeProviderName(provider)), answer


@router.post(
    "/subscriptions/{list_id}/no-challenge",
    responses=refuses(mailing.LIST_NOT_FOUND, mailing.LIST_BUSY),
)
@ACTS_BY_LIST.threaded("list_id")
def subscribe_me(
    request: Request, state: StateOf, caller: ListEditor, list_id: PathId
) -> Envelope[int]:
    """Subscribe the caller, also one who had left: 1, or 0 when they were subscribed before."""
    with state.resources.unit_of_work() as uow:
        person = accounts.get(uow, caller.user_id)
        actor = actors.user_actor(request, caller)
        mailing_list = lists.get(uow, list_id)
        return envelope(joining.join(uow, state.resources.keyring, mailing_list, person, actor))


@router.delete(
    "/subscriptions/{list_id}",
    dependencies=[BY_TRACE],
    openapi_extra=_body(),
    responses=refuses(mailing.LIST_NAME_INVALID, *_TRACE_REFUSALS),
)
@LEAVING.threaded
def unsubscribe(
    request: Request, state: StateOf, list_id: str, submission: FormOrJsonBodyOf
) -> Envelope[int]:
    """Unsubscribe the person of the trace id, or else the caller, from a list, by its id or slug.

    Always 1. Only that person can subscribe again; no owner and no import can add them.
    """
    principal = actors.identify_principal(request, state, submission, Scope.SUBSCRIPTION_FULL)
    with state.resources.unit_of_work() as uow:
        mailing_list = lists.get_named(uow, list_id, archived=True)
        person = principal.leaver(uow, mailing_list)
    if person is not None:
        actor = actors.actor_of_principal(request, principal)
        leaving.opt_out(state.resources, mailing_list, person, OptOutKind.LIST, actor)
    return envelope(ACCEPTED)


@router.put(
    "/subscriptions/{list_id}/email",
    dependencies=[BY_TRACE],
    openapi_extra=_body(enabled={"type": "boolean", "examples": [False]}),
    responses=refuses(*_TRACE_REFUSALS, mailing.LIST_BUSY),
)
async def set_email_enabled(
    request: Request, state: StateOf, list_id: PathId, submission: FormOrJsonBodyOf
) -> Envelope[int]:
    """Switch a list's mail off or on, for the person of the trace id or the caller. Always 1."""
    try:
        is_enabling = submission.flag("enabled")
    except DomainError:
        # The refusal comes after that of missing credentials.
        is_enabling = False
    call = partial(_set_email, request, state, list_id, submission)
    await (ACTS_BY_LIST.run(list_id, call) if is_enabling else LEAVING.run(call))
    return envelope(ACCEPTED)


@router.post(
    "/subscriptions/{list_id}/delete",
    dependencies=[BY_TRACE],
    openapi_extra=_body(**{"List-Unsubscribe": {"type": "string", "examples": ["One-Click"]}}),
    responses=refuses(*_TRACE_REFUSALS),
)
@LEAVING.threaded
def disable_email(
    request: Request, state: StateOf, list_id: PathId, submission: FormOrJsonBodyOf
) -> Envelope[int]:
    """Switch a list's mail off by one click (RFC 8058), for the trace id's person. Always 1."""
    principal = actors.identify_principal(request, state, submission, Scope.SUBSCRIPTION_FULL)
    _disable_email(request, state, list_id, principal)
    return envelope(ACCEPTED)


def _set_email(request: Request, state: State, list_id: int, submission: FormOrJsonBody) -> None:
    principal = actors.identify_principal(request, state, submission, Scope.SUBSCRIPTION_FULL)
    if not submission.flag("enabled"):
        _disable_email(request, state, list_id, principal)
        return
    with state.resources.unit_of_work() as uow:
        mailing_list = lists.get(uow, list_id, archived=True)
        person = principal.person(uow, mailing_list)
        actor = actors.actor_of_principal(request, principal)
        keyring = state.resources.keyring
        leaving.set_email(uow, keyring, mailing_list, person, actor, enabled=True)


def _disable_email(request: Request, state: State, list_id: int, principal: Principal) -> None:
    with state.resources.unit_of_work() as uow:
        mailing_list = lists.get(uow, list_id, archived=True)
        person = principal.leaver(uow, mailing_list)
    if person is not None:
        actor = actors.actor_of_principal(request, principal)
        leaving.opt_out(state.resources, mailing_list, person, OptOutKind.EMAIL, actor)


@router.get(
    "/subscriptions/{list_id}/rel",
    responses=refuses(
        mailing.LIST_NAME_INVALID, mailing.LIST_NOT_FOUND, mailing.SUBSCRIPTION_NOT_FOUND
    ),
)
@RECORDS.threaded
def read_my_subscription(
    state: StateOf, caller: ListReader, list_id: str
) -> Envelope[SubscriptionRecord]:
    """The caller's subscription to a list, by its id or slug, whatever its status."""
    with state.resources.unit_of_work() as uow:
        mailing_list = lists.get_named(uow, list_id, archived=True)
        record = own.get(uow, mailing_list.id, caller.user_id)
        channel = list_response(uow, state, mailing_list)
        return envelope(SubscriptionRecord.of_row(record, list=channel))


@router.get("/subscriptions")
@RECORDS.threaded
def list_my_subscriptions(state: StateOf, caller: ListReader) -> Envelope[list[SubscriptionRecord]]:
    """The caller's subscriptions, pending ones too, newest first; at most 1,000."""
    with state.resources.unit_of_work() as uow:
        found = own.list_of(uow, caller.user_id)
        channels = list_responses(uow, state, [mailing_list for _, mailing_list in found])
        records = [
            SubscriptionRecord.of_row(record, list=channel)
            for (record, _), channel in zip(found, channels, strict=True)
        ]
        return envelope(records)


@router.get(
    "/subscriptions/opponent",
    dependencies=[requires_scope_or_trace(Scope.SUBSCRIPTION_READ)],
    responses=refuses(mailing.LIST_ID_MISSING, *_TRACE_REFUSALS, mailing.SUBSCRIPTION_NOT_FOUND),
)
@RECORDS.threaded
def read_opponent(
    request: Request,
    state: StateOf,
    submission: FormOrJsonBodyOf,
    list_id: Annotated[PathId | None, Query(description="Which list, for a login")] = None,
) -> Envelope[Opponent]:
    """A list and a person's subscription to it: the trace id's person, or else the caller.

    By a trace id the address is masked, and name, user id and the tier's end are null: mails are
    passed on, with the links in them.
    """
    principal = actors.identify_principal(request, state, submission, Scope.SUBSCRIPTION_READ)
    wanted = principal.trace.list_id if principal.trace and list_id is None else list_id
    if wanted is None:
        raise mailing.LIST_ID_MISSING()
    with state.resources.unit_of_work() as uow:
        mailing_list = lists.get(uow, wanted, archived=True)
        person = principal.person(uow, mailing_list)
        record = own.get(uow, mailing_list.id, person.id)
        channel = list_response(uow, state, mailing_list)
        shown = SubscriptionRecord.of_row(record)
        return envelope(Opponent(list=channel, sub=shown.masked() if principal.trace else shown))
