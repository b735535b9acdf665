"""Converts requests and responses of OAuth for the library that processes them."""

from contextlib import suppress
from typing import Annotated

from fastapi import Depends, Request
from fastapi.responses import JSONResponse, Response

from api.bodies.json_bodies import media_type
from api.bodies.url_encoded_forms import FORM, read_pairs
from services.oauth.adapters import OAuthRequest, OAuthResponse


async def _read_oauth_request(request: Request) -> OAuthRequest:
    """Keep the fields of a form, including repeated ones. Any other body has no fields."""
    form: list[tuple[str, str]] = []
    if media_type(request.headers.get("content-type", "")) == FORM:
        with suppress(ValueError):
            form = await read_pairs(await request.body())
    header = ", ".join(request.headers.getlist("authorization"))
    return OAuthRequest(request.method, request.scope["path"], form, header or None)


OAuthRequestOf = Annotated[OAuthRequest, Depends(_read_oauth_request)]


def oauth_request_of_query(request: Request) -> OAuthRequest:
    return OAuthRequest("GET", request.scope["path"], request.query_params.multi_items())


def oauth_response(reply: OAuthResponse) -> Response:
    # Only the client may keep the tokens, so caches must not store them.
    headers = {"Cache-Control": "no-store", **reply.headers}
    headers.pop("Content-Type", None)
    return JSONResponse(reply.body, reply.status, headers=headers)
