"""The API endpoint with which anyone can subscribe an e-mail address to a list.

Programs send JSON, and HTML pages without scripts send a form. The endpoint needs no CSRF token,
because it ignores cookies and credentials. Challenges, confirmations and rate limits make it hard
to sign up other people's addresses.
"""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from api.auth.requirements import PUBLIC
from api.bodies.form_or_json import nest_inputs, read_body_fields
from api.bodies.json_bodies import parse_media_type
from api.bodies.multipart import MULTIPART
from api.bodies.url_encoded_forms import FORM
from api.client_details import describe_visitor
from api.html.problems import get_reader_language, is_for_browser, mark_reader_request
from api.openapi.declarations import error_responses
from api.record_ids import ListId
from api.route_classes import Handler, JsonRoute
from api.schemas.envelope import Envelope, build_envelope
from api.schemas.subscriptions import NewSubscription, SignUpForm
from api.sign_up.form import ListForm
from api.sign_up.submission import parse_inputs, subscribe_by_form, subscribe_stranger
from api.state import StateOf
from core.errors import mailing, requests
from core.languages import reader_languages
from services.subscriptions import lists

# Every response to a sign-up contains the same number, so that nobody learns which addresses were
# already subscribed.
ACCEPTED_COUNT = 1


class _SignUpRoute(JsonRoute):
    """A route that responds to a browser's form with HTML pages, even for errors."""

    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()

        async def handle_form(request: Request) -> Response:
            _mark_browser_form(request)
            return await handle(request)

        return handle_form


router = APIRouter(tags=["Subscriptions"], route_class=_SignUpRoute)


def _mark_browser_form(request: Request) -> None:
    """A program that sends a form gets JSON if it accepts JSON but not HTML."""
    accepted = request.headers.get("accept", "")
    is_program = "application/json" in accepted and "text/html" not in accepted
    is_form = parse_media_type(request.headers.get("content-type", "")) in {FORM, MULTIPART}
    if is_form and not is_program:
        mark_reader_request(request.scope)


def _describe_body() -> dict[str, Any]:
    schemas = {"application/json": NewSubscription, FORM: SignUpForm, MULTIPART: SignUpForm}
    content = {
        content_type: {"schema": {"$ref": f"#/components/schemas/{schema.__name__}"}}
        for content_type, schema in schemas.items()
    }
    return {"requestBody": {"required": True, "content": content}}


@router.post(
    "/subscriptions/{list_id}",
    summary="Subscribe an address",
    dependencies=[PUBLIC],
    openapi_extra=_describe_body(),
    response_model=Envelope[int],
    responses={
        303: {
            "description": (
                "A redirect to `redirect_url`, or to a page with the result. Sent in "
                "response to a form."
            )
        },
        **error_responses(
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
    """Subscribe any e-mail address to a list. Always returns 1, even if the address is already
    subscribed.

    If the list uses a CAPTCHA, send the three challenge fields with the action `subscribe`. The
    subscription is pending if the list requires confirmation, or if the person was a member before
    or opted out. The person activates a pending subscription with the link in a confirmation
    e-mail. Callers with credentials use `/no-challenge` instead. The response to a plain HTML form
    is a redirect, or a page with errors to correct.
    """
    pairs, is_form = await read_body_fields(request)
    inputs = nest_inputs(pairs, "fields") if is_form else dict(pairs)
    if is_for_browser(request.scope):
        form = await state.in_unit_of_work(
            lambda uow: ListForm.read(uow, lists.get_list(uow, list_id))
        )
        visitor = describe_visitor(request, get_reader_language(request))
        return await subscribe_by_form(state, form, inputs, visitor)
    submission = parse_inputs(inputs)
    mailing_list = await state.in_unit_of_work(lists.get_list, list_id)
    accepted_languages = request.headers.get("accept-language")
    # Most programs don't send an Accept-Language header. Browsers send the reader's preferred
    # languages, even in requests of scripts.
    language = reader_languages.choose_language(accepted_languages) if accepted_languages else None
    visitor = describe_visitor(request, language)
    await subscribe_stranger(state, mailing_list, submission, visitor, is_form=is_form)
    return JSONResponse(build_envelope(ACCEPTED_COUNT).model_dump())
