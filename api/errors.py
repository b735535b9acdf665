"""Domain errors to problem+json (RFC 9457): the one place where a kind becomes a status."""

import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

import orjson
import psycopg2
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute, iter_route_contexts
from pydantic import ValidationError
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from api.html.problems import ErrorDetails, find_problem_renderer
from api.metrics import ERRORS
from core.errors import DomainError, FieldProblem, Kind, TransientError, access, own_words, requests
from core.logging import get_logger
from core.request_ids import current_request_id

log = get_logger(__name__)

STATUS_OF = {
    Kind.MALFORMED: 400,
    Kind.UNAUTHENTICATED: 401,
    Kind.PAYMENT_NEEDED: 402,
    Kind.FORBIDDEN: 403,
    Kind.NOT_FOUND: 404,
    Kind.NOT_ALLOWED: 405,
    Kind.STALLED: 408,
    Kind.CONFLICT: 409,
    Kind.TOO_LARGE: 413,
    Kind.PATH_TOO_LONG: 414,
    Kind.UNSUPPORTED_TYPE: 415,
    Kind.RANGE: 416,
    Kind.INVALID: 422,
    Kind.RATE_LIMITED: 429,
    Kind.PROVIDER_FAILED: 502,
    Kind.UNAVAILABLE: 503,
    Kind.TOO_SLOW: 504,
    Kind.DAMAGED: 500,
}
# The router's own errors, by status.
_ROUTING = {404: requests.ROUTE_NOT_FOUND, 405: requests.ROUTE_METHOD_NOT_ALLOWED}


def problem_response(error: DomainError) -> Response:
    """Return the answer of an error; it needs no request, so that middleware can use it too."""
    ERRORS.labels(error.code).inc()
    headers = {}
    if error.retry_after is not None:
        headers["Retry-After"] = str(error.retry_after)
    if error.kind is Kind.UNAUTHENTICATED or error.needed_scope is not None:
        # RFC 6750, 3: it says what is wrong with the credentials.
        challenge = 'Bearer realm="pressroom"'
        if error.needed_scope is not None:
            challenge += f', error="insufficient_scope", scope="{error.needed_scope}"'
        elif error.code == access.AUTH_INVALID_API_KEY.code:
            challenge += ', error="invalid_token"'
        headers["WWW-Authenticate"] = challenge
    return _Problem(
        STATUS_OF[error.kind],
        error.code,
        error.message,
        headers,
        problems=error.problems,
        facts=error.facts,
    )


def internal_error() -> Response:
    return _Problem(500, "internal_error", "Something broke here; the request id leads to it.", {})


class _Problem(Response):
    """The answer of an error: a page for browsers, problem+json for programs."""

    media_type = "application/problem+json"

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        headers: dict[str, str],
        *,
        problems: tuple[FieldProblem, ...] = (),
        facts: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self._shown = ErrorDetails(status, code, message, current_request_id())
        self._added = headers
        body: dict[str, Any] = {
            "type": "about:blank",
            "title": HTTPStatus(status).phrase,
            "status": status,
            "detail": message,
            "code": code,
            "message": message,
            "ts": int(time.time()),
            "request_id": current_request_id(),
            **facts,
        }
        if problems:
            body["errors"] = list(problems)
        super().__init__(orjson.dumps(body), status, headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        render_problem = find_problem_renderer(scope)
        if render_problem is None:
            await super().__call__(scope, receive, send)
            return
        page = render_problem(self._shown)
        page.headers.update(self._added)
        await page(scope, receive, send)


async def _http_exception(request: Request, error: HTTPException) -> Response:
    if error.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return internal_error()
    headers = dict(error.headers or {})
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        # Every method of the path; the router's own header names only those of one route.
        path = request.scope["path"]
        methods = {
            method
            for route in iter_route_contexts(request.app.routes)
            if isinstance(route.original_route, APIRoute) and route.path_regex.match(path)
            for method in route.methods or ()
        }
        headers["Allow"] = ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))
    declared = _ROUTING.get(error.status_code)
    code = declared.code if declared else f"http.{error.status_code}"
    return _Problem(error.status_code, code, str(error.detail), headers)


async def _unreachable(_: Request, error: Exception) -> Response:
    log.warning("dependency.unreachable", reason=f"{type(error).__name__}: {error}")
    return problem_response(requests.SERVICE_UNAVAILABLE())


async def _validation_error(_: Request, error: RequestValidationError) -> Response:
    return problem_response(request_error(error.errors()))


# The largest number of validation errors that a response lists.
MAX_PROBLEMS = 100
# The path of a wrong value can contain long names from the caller, so it is cut off after this
# number of characters.
MAX_PLACE_CHARACTERS = 64
_CUT = "…"


def request_error(errors: Sequence[Any], *, count: int | None = None) -> DomainError:
    """Return the error for an invalid request. The error lists the first wrong values.

    The status is 422 for an invalid body. It is 400 for an invalid path or query, and for a body
    that isn't JSON.

    Args:
        errors: Pydantic's validation errors, or only the first of these errors.
        count: the total number of errors, if ``errors`` doesn't contain them all.
    """
    problems = tuple(map(_field_problem, errors[:MAX_PROBLEMS]))
    omitted = (len(errors) if count is None else count) - len(problems)
    facts = {"omitted_errors": omitted} if omitted else {}
    if any(each["type"] == "json_invalid" for each in errors):
        return requests.BODY_NOT_JSON(problems=problems, facts=facts)
    in_body = all(each["loc"][0] == "body" for each in errors)
    declared = requests.BODY_INVALID if in_body else requests.REQUEST_INVALID
    rule, place = problems[0].message, problems[0].field
    return declared(place=place, rule=rule, problems=problems, facts=facts)


def body_error(error: ValidationError) -> DomainError:
    """Return the error for a body that its schema refuses."""
    errors = error.errors(include_url=False, include_input=False)
    return request_error([{**each, "loc": ("body", *each["loc"])} for each in errors])


def _field_problem(error: Mapping[str, Any]) -> FieldProblem:
    return FieldProblem(written_place(error["loc"]), error["type"], own_words(error["msg"]))


def written_place(parts: Sequence[str | int]) -> str:
    """Return ``body.members[3].email`` for ``("body", "members", 3, "email")``.

    A JSON name may contain half a character (a lone surrogate), which UTF-8 can't encode. The place
    contains the escape of this surrogate instead, such as ``\\ud800``.
    """
    written = (f"[{each}]" if isinstance(each, int) else f".{each}" for each in parts)
    place = "".join(written).removeprefix(".").encode(errors="backslashreplace").decode()
    is_long = len(place) > MAX_PLACE_CHARACTERS
    return place[:MAX_PLACE_CHARACTERS] + _CUT if is_long else place


HANDLERS: dict[int | type[Exception], Callable[[Request, Any], Coroutine[Any, Any, Response]]] = {
    RequestValidationError: _validation_error,
    HTTPException: _http_exception,
    TransientError: _unreachable,
    OperationalError: _unreachable,
    InterfaceError: _unreachable,
    # The driver's own errors: of single statements, and when SQLAlchemy takes back a connection
    # whose server went away after the statement's reply.
    psycopg2.OperationalError: _unreachable,
    psycopg2.InterfaceError: _unreachable,
    PoolTimeoutError: _unreachable,
}
