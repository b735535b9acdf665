"""The public sign-up of a list: JSON for programs, a plain form for pages that have no scripts.

It is the act of a stranger who names an address. Cookies and credentials are not looked at, so a
form on any site can do nothing in the name of the person whose browser sends it, and no token
against forged requests would protect anything: each site may have such a form, and scripts of each
site may send the same as JSON. What is done with an address is bounded by the challenge of the
list, by confirmation, and by the limits of calls and of unasked mail.
"""

from functools import partial
from typing import Any

from fastapi import APIRouter, Depends, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import ValidationError

from api.access import actors
from api.access.answer_timing import padded_duration
from api.access.browsers import client_address
from api.access.requirements import PUBLIC
from api.bodies.forms import body_fields, nested_inputs
from api.bodies.json_route import JsonRoute
from api.bodies.media_types import FORM, MULTIPART, media_type
from api.errors import STATUS_OF
from api.limits.shares import ACTS_BY_LIST
from api.openapi import refuses
from api.pages.frame import page, redirect
from api.pages.problems import is_for_browser, mark_as_page
from api.parameters import PathId, StateOf
from api.schemas.envelope import Envelope, envelope
from api.schemas.subscriptions import NewSubscription, SignUpForm
from api.state import State
from core.errors import DomainError, FieldProblem
from core.refusals import mailing, requests
from core.refusals.attributes import FIELD_VALUE
from core.settings import origins
from integrations.challenges.port import (
    Challenge,
    ChallengeAction,
    ChallengeProviderName,
    ChallengeResponse,
)
from integrations.challenges.widgets import WIDGETS
from models import MailingList
from services.mailing import lists
from services.mailing.attributes import fields, submissions
from services.mailing.consent import wordings
from services.mailing.subscriptions import subscribe as joining
from services.mailing.subscriptions.changes import Via
from services.mailing.subscriptions.mail_urls import subscribed_url
from services.people.email_addresses import MAX_ADDRESS_BYTES
from storage.unit_of_work import UnitOfWork

router = APIRouter(tags=["Subscriptions"], route_class=JsonRoute)

# The answer, whatever it changed: no caller learns who subscribes.
ACCEPTED = 1

_NOT_PASSED = "The check that you are a person was not passed. Please do it once more."
_NOT_TAKEN = "We can’t take one of the answers as it is written. Please look at them again."
# What the person can put right on the page, in words for them.
_CORRECTABLE = {
    mailing.CHALLENGE_MISSING.code: _NOT_PASSED,
    mailing.CHALLENGE_FAILED.code: _NOT_PASSED,
    mailing.CHALLENGE_PROVIDER_MISMATCH.code: _NOT_PASSED,
    mailing.CHALLENGE_UNAVAILABLE.code: (
        "We can’t check at the moment that you are a person. Please try again in a minute."
    ),
    FIELD_VALUE.code: _NOT_TAKEN,
    mailing.LIST_BUSY.code: "We are changing this list just now. Please try again in a minute.",
}


async def _answer_form_by_page(request: Request) -> None:
    """Note that a browser sent a form of its own: its refusals are pages too.

    A program that sends a form asks for JSON alone.
    """
    accepted = request.headers.get("accept", "")
    is_program = "application/json" in accepted and "text/html" not in accepted
    is_form = media_type(request.headers.get("content-type", "")) in {FORM, MULTIPART}
    if is_form and not is_program:
        mark_as_page(request.scope)


def _body() -> dict[str, Any]:
    kinds = {
        "application/json": NewSubscription,
        FORM: SignUpForm,
        MULTIPART: SignUpForm,
    }
    content = {
        kind: {"schema": {"$ref": f"#/components/schemas/{schema.__name__}"}}
        for kind, schema in kinds.items()
    }
    return {"requestBody": {"required": True, "content": content}}


@router.post(
    "/subscriptions/{list_id}",
    dependencies=[Depends(_answer_form_by_page), PUBLIC],
    openapi_extra=_body(),
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
            FIELD_VALUE,
        ),
    },
)
async def subscribe(request: Request, state: StateOf, list_id: PathId) -> Response:
    """Subscribe an address, as a stranger. Always 1, also for an address that is subscribed.

    A list with a challenge needs the three challenge fields; the action is `subscribe`. If the list
    requires confirmation, or had the person before, or they opted out of it, the subscription is
    pending until a person confirms the link that is mailed to the address. A caller with
    credentials calls `/no-challenge` instead. A plain HTML form is answered by a redirect, or by a
    page that says what to correct.
    """
    pairs, is_form = await body_fields(request)
    inputs = nested_inputs(pairs, "fields") if is_form else dict(pairs)
    find_list = partial(lists.get, list_id=list_id)
    if is_for_browser(request.scope):
        mailing_list = await state.in_unit_of_work(find_list)
        return await _answer_form(request, state, mailing_list, inputs)
    try:
        wanted = NewSubscription.model_validate(inputs)
    except ValidationError as error:
        problems = [{**each, "loc": ("body", *each["loc"])} for each in error.errors()]
        raise RequestValidationError(problems) from None
    mailing_list = await state.in_unit_of_work(find_list)
    await _subscribe(request, state, mailing_list, wanted, is_form=is_form)
    return JSONResponse(envelope(ACCEPTED).model_dump())


async def _answer_form(
    request: Request, state: State, mailing_list: MailingList, inputs: dict[str, Any]
) -> Response:
    settings = state.resources.settings
    back = inputs.get("redirect_url")
    url = origins.read_url(back) if isinstance(back, str) else None
    if url is None or not url.is_of({*settings.redirect_origins, *mailing_list.redirect_origins}):
        back, url = None, None
    try:
        wanted = NewSubscription.model_validate(_with_widget_token(mailing_list, inputs))
        await _subscribe(request, state, mailing_list, wanted, is_form=True)
    except ValidationError as error:
        status, headers, problem = 422, {}, _said(error)
    except DomainError as error:
        if error.code not in _CORRECTABLE:
            raise
        status, problem = STATUS_OF[error.kind], _CORRECTABLE[error.code]
        headers = {"Retry-After": str(error.retry_after)} if error.retry_after else {}
    else:
        return redirect(back or subscribed_url(settings, mailing_list.id))
    texts = await state.in_unit_of_work(partial(wordings.of_lists, lists=[mailing_list]))
    answer = page(
        "sign_up.html",
        status=status,
        # Browsers hold all redirects that follow on the form to this, also those of the owner's own
        # site; so the scheme is named, and not the origin.
        form_targets=f"{url.origin.partition(':')[0]}:" if url else "",
        list_title=mailing_list.title,
        wording=texts.get(mailing_list.id),
        # No address is longer.
        email=str(inputs.get("email", ""))[:MAX_ADDRESS_BYTES],
        problem=problem,
        redirect_url=back,
        written=await _written(state, mailing_list, inputs),
        **_shown_challenge(state, mailing_list),
    )
    answer.headers.update(headers)
    return answer


def _said(error: ValidationError) -> str:
    """What a person can put right."""
    problems = {str(each["loc"][0]): each for each in reversed(error.errors())}
    found = problems.get("email")
    if found is not None:
        is_own = found["type"] == "email.invalid"
        return found["msg"] if is_own else "Please write your e-mail address."
    return _NOT_TAKEN


async def _written(
    state: State, mailing_list: MailingList, inputs: dict[str, Any]
) -> list[dict[str, str]]:
    """The inputs beside the address, with what the person wrote, to be corrected and sent again."""
    found = {"name": ("Name", inputs["name"])} if inputs.get("name") else {}
    if inputs["fields"]:
        own = await state.in_unit_of_work(partial(fields.own, owner_id=mailing_list.user_id))
        for key, field in own.public().by_key.items():
            if key in inputs["fields"]:
                found[f"fields.{key}"] = (field.label, inputs["fields"][key])
    return [{"name": name, "label": each[0], "value": each[1]} for name, each in found.items()]


def _with_widget_token(mailing_list: MailingList, inputs: dict[str, Any]) -> dict[str, Any]:
    """The inputs, with the token that the widget wrote under the provider's own name."""
    if not mailing_list.challenge_enabled or mailing_list.challenge_provider is None:
        return inputs
    provider = ChallengeProviderName(mailing_list.challenge_provider)
    token = inputs.get(WIDGETS[provider].field)
    if not token or inputs.get("challenge-token"):
        return inputs
    # The provider says itself for which action the widget was shown.
    named = {"challenge-provider": provider.value, "challenge-action": "subscribe"}
    return {**inputs, **named, "challenge-token": token}


def _shown_challenge(state: State, mailing_list: MailingList) -> dict[str, Any]:
    """What the page needs to show the list's widget; ``widget`` is ``None`` where it has none."""
    name = mailing_list.challenge_provider
    if not mailing_list.challenge_enabled or name not in state.challenges.configured:
        return {"widget": None}
    provider = ChallengeProviderName(name)
    widget, site_key = WIDGETS[provider], state.challenges.challenge_for(provider).site_key
    return {
        "widget": widget,
        "foreign": widget.policy,
        "site_key": site_key,
        "action": ChallengeAction.SUBSCRIBE,
    }


async def _subscribe(
    request: Request,
    state: State,
    mailing_list: MailingList,
    wanted: NewSubscription,
    *,
    is_form: bool,
) -> None:
    list_id = mailing_list.id
    via = Via.FORM
    if mailing_list.challenge_enabled:
        challenge, answer = _challenge(request, state, mailing_list, wanted)
        await challenge.check(answer)
        via = Via.CHALLENGE
    actor = actors.stranger_actor(request, via)
    resources = state.resources

    def request_subscription(uow: UnitOfWork) -> None:
        mailing_list = lists.get(uow, list_id)
        given = submissions.read(
            uow, mailing_list.user_id, name=wanted.name, values=wanted.fields, is_text=is_form
        )
        joining.request(
            uow,
            resources.keyring,
            mailing_list,
            wanted.email,
            actor,
            settings=resources.settings,
            submission=given,
        )

    async with padded_duration():
        await ACTS_BY_LIST.run(list_id, state.transact, request_subscription)


def _challenge(
    request: Request, state: State, mailing_list: MailingList, wanted: NewSubscription
) -> tuple[Challenge, ChallengeResponse]:
    provider, token = wanted.challenge_provider, wanted.challenge_token
    if not provider or not token or not wanted.challenge_action:
        problems = tuple(
            FieldProblem(f"body.{field.alias}", "missing", "is required for this list")
            for name, field in NewSubscription.model_fields.items()
            if name.startswith("challenge") and not getattr(wanted, name)
        )
        rules = "; ".join(f"{each.field}: {each.message}" for each in problems)
        raise mailing.CHALLENGE_MISSING(rules=rules, problems=problems)
    if provider != mailing_list.challenge_provider:
        raise mailing.CHALLENGE_PROVIDER_MISMATCH(provider=mailing_list.challenge_provider)
    # A token that was made for something else is no token for this.
    if wanted.challenge_action != ChallengeAction.SUBSCRIBE:
        raise mailing.CHALLENGE_FAILED()
    answer = ChallengeResponse(token, ChallengeAction.SUBSCRIBE, client_address(request))
    return state.challenges.challenge_for(ChallengeProviderName(provider)), answer
