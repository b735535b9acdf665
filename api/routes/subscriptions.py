"""Subscriptions for the subscribers themselves."""

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, Response
from pydantic import ValidationError

from api.answers import list_response, list_responses
from api.auth import actors
from api.auth.actors import Principal
from api.auth.requirements import PUBLIC, ListEditor, ListReader, requires_scope_or_trace
from api.bodies.forms import (
    FORM,
    MULTIPART,
    FormOrJsonBody,
    FormOrJsonBodyOf,
    body_fields,
    nested_inputs,
)
from api.bodies.json_bodies import media_type
from api.errors import request_error
from api.html.problems import is_for_browser, mark_as_reader_page
from api.limits.bulkheads import ACTS_BY_LIST, LEAVING
from api.openapi import array_pages, refuses
from api.pages.sign_up.submission import answer_form
from api.parameters import ArrayPaging, ListId, PathId, StateOf, Transaction, link_next
from api.route_classes import Handler, JsonRoute
from api.schemas.envelope import Envelope, envelope
from api.schemas.subscriptions import (
    NewSubscription,
    Opponent,
    OwnSubmission,
    SignUpForm,
    SubscriptionRecord,
)
from api.state import State
from api.strangers import submit
from core.errors import DomainError, mailing, requests
from core.languages.reader_languages import chosen
from core.scopes import Scope
from models import OptOutKind
from services.accounts import accounts
from services.subscriptions import lists, member_attributes, sign_up
from services.subscriptions.members import members
from services.subscriptions.members import unsubscribe as leaving
from services.subscriptions.members.changes import Via

router = APIRouter(tags=["Subscriptions"], route_class=JsonRoute)

BY_TRACE = requires_scope_or_trace(Scope.SUBSCRIPTION_FULL)

# The answer of calls without credentials, whatever they changed: no caller learns who subscribes.
ACCEPTED = 1

_TRACE_ERRORS = (
    mailing.TRACE_AMBIGUOUS,
    requests.BODY_NOT_JSON,
    requests.BODY_NO_JSON_OR_FORM_TYPE,
    requests.BODY_INVALID.filled(place="body.trace_id", rule="must be a string"),
    mailing.LIST_NOT_FOUND,
)


def _body(**properties: Any) -> dict[str, Any]:
    """Return ``openapi_extra`` of a body that may be JSON or a form."""
    trace_id = {
        "type": "string",
        "description": "Instead of the query parameter",
        "examples": ["1AAAAAAAEEgAAAABMxF8AAAAAAAC8VQ.k1.BwgJCgsMDQ4PEBESExQVFg"],
    }
    schema = {"type": "object", "properties": {**properties, "trace_id": trace_id}}
    kinds = ("application/json", FORM, MULTIPART)
    return {"requestBody": {"content": {kind: {"schema": schema} for kind in kinds}}}


@router.post(
    "/subscriptions/{list_id}/no-challenge",
    responses=refuses(
        mailing.LIST_NOT_FOUND, mailing.MEMBER_DENIED, mailing.LIST_BUSY, mailing.FIELD_VALUE
    ),
)
@ACTS_BY_LIST.threaded("list_id")
def subscribe_me(
    request: Request,
    uow: Transaction,
    caller: ListEditor,
    list_id: ListId,
    body: OwnSubmission | None = None,
) -> Envelope[int]:
    """Subscribe the caller, also one who had left: 1, or 0 when all was so before.

    The body may set the fields that the list's owner made public.
    """
    person = accounts.get(uow, caller.user_id)
    actor = actors.actor_of_principal(request, Principal(person.id, Via.LOGIN, None))
    mailing_list = lists.get(uow, list_id)
    values = {} if body is None else body.fields
    given = member_attributes.read_submission(uow, mailing_list.user_id, values=values)
    joined = sign_up.join(uow, mailing_list, person, actor, submission=given)
    return envelope(joined)


@router.delete(
    "/subscriptions/{list_id}",
    dependencies=[BY_TRACE],
    openapi_extra=_body(),
    responses=refuses(mailing.LIST_NAME_INVALID, *_TRACE_ERRORS),
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
    responses=refuses(*_TRACE_ERRORS, mailing.LIST_BUSY),
)
async def set_email_enabled(
    request: Request, state: StateOf, list_id: ListId, submission: FormOrJsonBodyOf
) -> Envelope[int]:
    """Switch a list's mail off or on, for the person of the trace id or the caller. Always 1."""
    try:
        is_enabling = submission.flag("enabled")
    except DomainError:
        # The error comes after that of missing credentials.
        is_enabling = False
    call = partial(_set_email, request, state, list_id, submission)
    await (ACTS_BY_LIST.run(list_id, call) if is_enabling else LEAVING.run(call))
    return envelope(ACCEPTED)


@router.post(
    "/subscriptions/{list_id}/delete",
    dependencies=[BY_TRACE],
    openapi_extra=_body(**{"List-Unsubscribe": {"type": "string", "examples": ["One-Click"]}}),
    responses=refuses(*_TRACE_ERRORS),
)
@LEAVING.threaded
def disable_email(
    request: Request, state: StateOf, list_id: ListId, submission: FormOrJsonBodyOf
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
        leaving.set_email(uow, mailing_list, person, actor, enabled=True)


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
def read_my_subscription(
    state: StateOf, uow: Transaction, caller: ListReader, list_id: str
) -> Envelope[SubscriptionRecord]:
    """The caller's subscription to a list, by its id or slug, whatever its status."""
    mailing_list = lists.get_named(uow, list_id, archived=True)
    record = members.get_own(uow, mailing_list.id, caller.user_id)
    channel = list_response(uow, state, mailing_list)
    return envelope(SubscriptionRecord.of_row(record, list=channel))


@router.get("/subscriptions", responses=array_pages())
def list_my_subscriptions(
    request: Request,
    response: Response,
    state: StateOf,
    uow: Transaction,
    caller: ListReader,
    paging: ArrayPaging,
) -> Envelope[list[SubscriptionRecord]]:
    """The caller's subscriptions, pending ones too, newest first."""
    found = members.list_of(uow, caller.user_id, paging)
    channels = list_responses(uow, state, [mailing_list for _, mailing_list in found.rows])
    records = [
        SubscriptionRecord.of_row(record, list=channel)
        for (record, _), channel in zip(found.rows, channels, strict=True)
    ]
    link_next(request, response, found)
    return envelope(records)


@router.get(
    "/subscriptions/opponent",
    dependencies=[requires_scope_or_trace(Scope.SUBSCRIPTION_READ)],
    responses=refuses(mailing.LIST_ID_MISSING, *_TRACE_ERRORS, mailing.SUBSCRIPTION_NOT_FOUND),
)
def read_opponent(
    request: Request,
    state: StateOf,
    uow: Transaction,
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
    mailing_list = lists.get(uow, wanted, archived=True)
    person = principal.person(uow, mailing_list)
    record = members.get_own(uow, mailing_list.id, person.id)
    channel = list_response(uow, state, mailing_list)
    shown = SubscriptionRecord.of_row(record)
    return envelope(Opponent(list=channel, sub=shown.masked() if principal.trace else shown))


# The public sign-up of a list: JSON for programs, a plain form for pages that have no scripts.
#
# A stranger names an address here. Cookies and credentials are not looked at: a form on any site
# can do nothing in the name of the person whose browser sends it, and a token against forged
# requests would protect nothing. The list's challenge, confirmation, and the limits of calls and
# of unsolicited mail bound what can be done with an address.


class _SignUpRoute(JsonRoute):
    """A route that answers a browser's form by pages, even if it refuses the request."""

    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()

        async def handle_form(request: Request) -> Response:
            _answer_form_by_page(request)
            return await handle(request)

        return handle_form


def _answer_form_by_page(request: Request) -> None:
    """Let errors of a browser's form be pages. A program that sends a form asks for JSON only."""
    accepted = request.headers.get("accept", "")
    is_program = "application/json" in accepted and "text/html" not in accepted
    is_form = media_type(request.headers.get("content-type", "")) in {FORM, MULTIPART}
    if is_form and not is_program:
        mark_as_reader_page(request.scope)


sign_up_router = APIRouter(tags=["Subscriptions"], route_class=_SignUpRoute)


def _form_or_json() -> dict[str, Any]:
    kinds = {"application/json": NewSubscription, FORM: SignUpForm, MULTIPART: SignUpForm}
    content = {
        kind: {"schema": {"$ref": f"#/components/schemas/{schema.__name__}"}}
        for kind, schema in kinds.items()
    }
    return {"requestBody": {"required": True, "content": content}}


@sign_up_router.post(
    "/subscriptions/{list_id}",
    dependencies=[PUBLIC],
    openapi_extra=_form_or_json(),
    response_model=Envelope[int],
    responses={
        303: {"description": "To a form: its `redirect_url`, or a page that says what happened"},
        **refuses(
            requests.BODY_NO_JSON_OR_FORM_TYPE,
            requests.BODY_MALFORMED_FORM,
            mailing.LIST_NOT_FOUND,
            mailing.CHALLENGE_FAILED,
            mailing.CHALLENGE_MISSING,
            mailing.CHALLENGE_PROVIDER_MISMATCH,
            mailing.CHALLENGE_UNAVAILABLE,
            mailing.CHALLENGE_NOT_CONFIGURED,
            mailing.LIST_BUSY,
            mailing.FIELD_VALUE,
        ),
    },
)
async def subscribe(request: Request, state: StateOf, list_id: ListId) -> Response:
    """Subscribe an address, as a stranger. Always 1, also for an address that is subscribed.

    A list with a challenge needs the three challenge fields; the action is `subscribe`. If the list
    requires confirmation, or had the person before, or they opted out of it, the subscription is
    pending until a person confirms the link that is mailed to the address. A caller with
    credentials calls `/no-challenge` instead. A plain HTML form is answered by a redirect, or by a
    page that says what to correct.
    """
    pairs, is_form = await body_fields(request)
    inputs = nested_inputs(pairs, "fields") if is_form else dict(pairs)
    if is_for_browser(request.scope):
        mailing_list = await state.in_unit_of_work(lists.get, list_id)
        return await answer_form(request, state, mailing_list, inputs)
    try:
        wanted = NewSubscription.model_validate(inputs)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_input=False)
        raise request_error([{**each, "loc": ("body", *each["loc"])} for each in errors]) from None
    mailing_list = await state.in_unit_of_work(lists.get, list_id)
    accepted = request.headers.get("accept-language")
    # A program says none; a script on a page says that of its person.
    language = chosen(accepted) if accepted else None
    await submit(request, state, mailing_list, wanted, is_form=is_form, language=language)
    return JSONResponse(envelope(ACCEPTED).model_dump())
