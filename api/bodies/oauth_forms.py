"""Translates HTTP requests for the authorization server's service, and its answers to HTTP."""

from typing import Annotated
from urllib.parse import parse_qsl

from fastapi import Depends, Request
from fastapi.responses import JSONResponse, Response

from api.bodies.forms import MAX_FORM_FIELDS
from api.bodies.media_types import FORM, media_type
from services.oauth.adapters import OAuthRequest, OAuthResponse

Pairs = list[tuple[str, str]]


async def _read_form(request: Request) -> Pairs:
    """The fields of a form, repeated ones too; none of a body that is no form."""
    if media_type(request.headers.get("content-type", "")) != FORM:
        return []
    try:
        text = (await request.body()).decode()
        return parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_FORM_FIELDS)
    except ValueError:
        return []


async def _oauth_request(
    request: Request, form: Annotated[Pairs, Depends(_read_form)]
) -> OAuthRequest:
    header = ", ".join(request.headers.getlist("authorization"))
    return OAuthRequest(request.method, request.scope["path"], form, header or None)


OAuthRequestOf = Annotated[OAuthRequest, Depends(_oauth_request)]


def oauth_request_of_query(request: Request) -> OAuthRequest:
    return OAuthRequest("GET", request.scope["path"], request.query_params.multi_items())


def oauth_response(reply: OAuthResponse) -> Response:
    # Only the client may keep the tokens, and no cache.
    headers = {"Cache-Control": "no-store", **reply.headers}
    headers.pop("Content-Type", None)
    return JSONResponse(reply.body, reply.status, headers=headers)
