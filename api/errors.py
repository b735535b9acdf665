"""Converts errors to HTML pages for browsers, and to problem+json (RFC 9457) for programs."""

import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
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
from core.broken_rules import describe_broken_rule
from core.errors import (
    DomainError,
    FieldProblem,
    Kind,
    TransientError,
    access,
    requests,
)
from core.errors.senders import SENDER_SIGNATURE_INVALID
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
# Under the key ``ERROR_CODES_KEY``, the ASGI scope contains a list of the response's error codes.
# Routers copy the ASGI scope, but all copies of the scope share this list.
ERROR_CODES_KEY = "pressroom.error_codes"
# The maximum number of validation errors in a response.
MAX_PROBLEMS = 100
# The maximum length of the JSON path to an invalid value in an error. Longer paths are truncated,
# because a client can send very long property names.
MAX_PLACE_CHARACTERS = 64
_ELLIPSIS = "…"
# Maps a status of Starlette's router to the corresponding error of Pressroom.
_ROUTER_ERRORS = {404: requests.ROUTE_NOT_FOUND, 405: requests.ROUTE_METHOD_NOT_ALLOWED}


def problem_response(error: DomainError) -> Response:
    """Return the HTTP response for an error, and count the error.

    The function has no ``Request`` parameter, so that ASGI middleware can call it.
    """
    ERRORS.labels(error.code).inc()
    headers = {}
    if error.retry_after is not None:
        headers["Retry-After"] = str(error.retry_after)
    if error.kind is Kind.UNAUTHENTICATED or error.needed_scope is not None:
        # ``WWW-Authenticate`` says why the credentials were refused (RFC 6750, section 3).
        challenge = 'Bearer realm="pressroom"'
        if error.needed_scope is not None:
            challenge += f', error="insufficient_scope", scope="{error.needed_scope}"'
        elif error.code == access.AUTH_INVALID_API_KEY.code:
            challenge += ', error="invalid_token"'
        if error.code == SENDER_SIGNATURE_INVALID.code:
            # Some HTTP clients send the user name and password in a URL only after a response with
            # the header ``WWW-Authenticate: Basic``.
            challenge = 'Basic realm="pressroom"'
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
    return _Problem(
        500, "internal_error", "An internal error occurred. Report it with the request id.", {}
    )


class _Problem(Response):
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
        self._problem = ErrorDetails(status, code, message, current_request_id())
        self._extra_headers = headers
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
        scope.setdefault(ERROR_CODES_KEY, []).append(self._problem.code)
        render_page = find_problem_renderer(scope)
        if render_page is None:
            await super().__call__(scope, receive, send)
            return
        page = render_page(replace(self._problem, path=scope["path"]))
        page.headers.update(self._extra_headers)
        await page(scope, receive, send)


async def _handle_http_exception(request: Request, error: HTTPException) -> Response:
    if error.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return internal_error()
    headers = dict(error.headers or {})
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        # List the methods of all routes with this path, because Starlette's router considers only
        # one route.
        path = request.scope["path"]
        methods = {
            method
            for route in iter_route_contexts(request.app.routes)
            if isinstance(route.original_route, APIRoute) and route.path_regex.match(path)
            for method in route.methods or ()
        }
        headers["Allow"] = ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))
    declared = _ROUTER_ERRORS.get(error.status_code)
    code = declared.code if declared else f"http.{error.status_code}"
    return _Problem(error.status_code, code, str(error.detail), headers)


async def _handle_unreachable_dependency(_: Request, error: Exception) -> Response:
    log.warning("dependency.unreachable", reason=f"{type(error).__name__}: {error}")
    return problem_response(requests.SERVICE_UNAVAILABLE())


async def _handle_validation_error(_: Request, error: RequestValidationError) -> Response:
    return problem_response(request_error(error.errors()))


def request_error(errors: Sequence[Any], *, count: int | None = None) -> DomainError:
    """Return an error that lists the first ``MAX_PROBLEMS`` invalid values of a request.

    A body that doesn't match its schema gets the status 422. A body that isn't JSON, an invalid
    path or an invalid query gets the status 400.

    Args:
        count: the number of all validation errors, if ``errors`` contains only the first ones.
    """
    problems = tuple(
        FieldProblem(format_place(error["loc"]), error["type"], describe_broken_rule(error))
        for error in errors[:MAX_PROBLEMS]
    )
    omitted = (len(errors) if count is None else count) - len(problems)
    facts = {"omitted_errors": omitted} if omitted else {}
    if any(error["type"] == "json_invalid" for error in errors):
        return requests.BODY_NOT_JSON(problems=problems, facts=facts)
    in_body = all(error["loc"][0] == "body" for error in errors)
    declared = requests.BODY_INVALID if in_body else requests.REQUEST_INVALID
    return declared(
        place=problems[0].field, rule=problems[0].message, problems=problems, facts=facts
    )


def body_error(
    error: ValidationError | Sequence[Mapping[str, Any]], *, count: int | None = None
) -> DomainError:
    """Return the error for a body that doesn't match its schema.

    ``error``: the error from Pydantic, or the details of the first of ``count`` errors.
    """
    details: Sequence[Mapping[str, Any]] = (
        error.errors(include_url=False, include_input=False)
        if isinstance(error, ValidationError)
        else error
    )
    return request_error([{**each, "loc": ("body", *each["loc"])} for each in details], count=count)


def format_place(parts: Sequence[str | int]) -> str:
    """Format the path ``("body", "members", 3, "email")`` as ``body.members[3].email``.

    A lone surrogate is escaped, for example as ``\\ud800``, because UTF-8 can't encode it.
    """
    steps = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    place = "".join(steps).removeprefix(".").encode(errors="backslashreplace").decode()
    is_long = len(place) > MAX_PLACE_CHARACTERS
    return place[:MAX_PLACE_CHARACTERS] + _ELLIPSIS if is_long else place


HANDLERS: dict[int | type[Exception], Callable[[Request, Any], Coroutine[Any, Any, Response]]] = {
    RequestValidationError: _handle_validation_error,
    HTTPException: _handle_http_exception,
    TransientError: _handle_unreachable_dependency,
    OperationalError: _handle_unreachable_dependency,
    InterfaceError: _handle_unreachable_dependency,
    # Errors of psycopg2 itself occur in code that bypasses SQLAlchemy, and when SQLAlchemy returns
    # a broken connection to its pool.
    psycopg2.OperationalError: _handle_unreachable_dependency,
    psycopg2.InterfaceError: _handle_unreachable_dependency,
    PoolTimeoutError: _handle_unreachable_dependency,
}
