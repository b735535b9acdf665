"""The endpoint by which a stranger subscribes an address to a list."""

from typing import Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response
from pydantic import ValidationError

from api.auth.requirements import PUBLIC
from api.bodies.forms import FORM, MULTIPART, body_fields, nested_inputs
from api.bodies.json_bodies import JsonRoute, media_type
from api.errors import request_error
from api.html.problems import is_for_browser, mark_as_reader_page
from api.openapi import refuses
from api.parameters import ListId, StateOf
from api.schemas.envelope import Envelope, envelope
from api.schemas.subscriptions import NewSubscription, SignUpForm
from api.sign_up.answer import answer_form
from api.sign_up.submission import submit
from core.errors import mailing, requests
from core.languages.reader_languages import chosen
from services.subscriptions import lists

router = APIRouter(tags=["Subscriptions"], route_class=JsonRoute)


async def _answer_form_by_page(request: Request) -> None:
    """Note that a browser sent a form of its own: its errors are pages too.

    A program that sends a form asks for JSON alone.
    """
    accepted = request.headers.get("accept", "")
    is_program = "application/json" in accepted and "text/html" not in accepted
    is_form = media_type(request.headers.get("content-type", "")) in {FORM, MULTIPART}
    if is_form and not is_program:
        mark_as_reader_page(request.scope)


def _form_or_json() -> dict[str, Any]:
    kinds = {"application/json": NewSubscription, FORM: SignUpForm, MULTIPART: SignUpForm}
    content = {
        kind: {"schema": {"$ref": f"#/components/schemas/{schema.__name__}"}}
        for kind, schema in kinds.items()
    }
    return {"requestBody": {"required": True, "content": content}}


@router.post(
    "/subscriptions/{list_id}",
    dependencies=[Depends(_answer_form_by_page), PUBLIC],
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
    return JSONResponse(envelope(1).model_dump())
