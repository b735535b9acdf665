"""Converts between HTTP and OAuth requests and responses."""

from contextlib import suppress
from typing import Annotated

from fastapi import Depends, Request
from fastapi.responses import JSONResponse, Response

from api.bodies.json_bodies import parse_media_type
from api.bodies.url_encoded_forms import FORM, read_pairs
from services.oauth.adapters import OAuthRequest, OAuthResponse


async def _read_oauth_request(request: Request) -> OAuthRequest:
    """Keep repeated form fields, and ignore a body that isn't a form."""
    form: list[tuple[str, str]] = []
    if parse_media_type(request.headers.get("content-type", "")) == FORM:
        with suppress(ValueError):
            form = await read_pairs(await request.body())
    header = ", ".join(request.headers.getlist("authorization"))
    return OAuthRequest(request.method, request.scope["path"], form, header or None)


OAuthRequestOf = Annotated[OAuthRequest, Depends(_read_oauth_request)]


def read_oauth_query(request: Request) -> OAuthRequest:
    return OAuthRequest("GET", request.scope["path"], request.query_params.multi_items())


def build_oauth_response(reply: OAuthResponse) -> Response:
    # Caches must not store OAuth responses, because the responses may contain tokens.
    headers = {"Cache-Control": "no-store", **reply.headers}
    headers.pop("Content-Type", None)
    return JSONResponse(reply.body, reply.status, headers=headers)
