"""Requests to the authorization server as its service reads them, and its answers over HTTP."""

from typing import Annotated
from urllib.parse import parse_qsl

from fastapi import Depends, Request
from fastapi.responses import JSONResponse, Response

from api.bodies.forms import FORM, MOST_FIELDS
from services.oauth.adapters import Asking, Reply

Pairs = list[tuple[str, str]]


async def _read_form(request: Request) -> Pairs:
    """The fields of a form, each as often as it came; none of what is no form."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != FORM:
        return []
    try:
        text = (await request.body()).decode()
        return parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError:
        return []


async def _asking(request: Request, form: Annotated[Pairs, Depends(_read_form)]) -> Asking:
    header = ", ".join(request.headers.getlist("authorization"))
    return Asking(request.method, request.scope["path"], form, header or None)


AskingOf = Annotated[Asking, Depends(_asking)]


def asking_by_query(request: Request) -> Asking:
    return Asking("GET", request.scope["path"], request.query_params.multi_items())


def as_json(reply: Reply) -> Response:
    # A client keeps the tokens; nobody on the way does.
    headers = {"Cache-Control": "no-store", **reply.headers}
    headers.pop("Content-Type", None)
    return JSONResponse(reply.body, reply.status, headers=headers)
