"""Translates HTTP requests for the authorization server's service, and its answers to HTTP."""

from contextlib import suppress
from typing import Annotated

from fastapi import Depends, Request
from fastapi.responses import JSONResponse, Response

from api.bodies.forms import form_pairs
from api.bodies.media_types import FORM, media_type
from services.oauth.adapters import OAuthRequest, OAuthResponse


async def _oauth_request(request: Request) -> OAuthRequest:
    """With the fields of a form, repeated ones too; without any of a body that is no form."""
    form: list[tuple[str, str]] = []
    if media_type(request.headers.get("content-type", "")) == FORM:
        with suppress(ValueError):
            form = form_pairs(await request.body())
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
