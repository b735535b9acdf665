"""Defines route classes that authorise a request before reading its body."""

from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import cached_property
from inspect import iscoroutinefunction
from json import JSONDecodeError
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from api.auth.requirements import Access, TraceAccess
from api.bodies.json_bodies import JsonRequest, require_json_type
from api.bodies.unknown_names import (
    KnownNames,
    begin_lenient_handling,
    begin_strict_handling,
    build_unknown_names_error,
    find_known_names,
    find_unknown_query_names,
    report_ignored_names,
)
from api.limits.bulkheads import RECORDS
from api.preferences import preference_of

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


def find_accesses(dependant: Dependant) -> list[Access]:
    calls: list[object] = [dependency.call for dependency in dependant.dependencies]
    return [call for call in calls if isinstance(call, Access)]


def require_access_rules(router: APIRouter) -> None:
    """Raise ``TypeError`` for a route class that enforces no access rule."""
    for route in router.routes:
        if isinstance(route, APIRoute) and not isinstance(route, ThreadedRoute):
            raise TypeError(f"{_name_handler(route)} must have the route class ThreadedRoute")


def _name_handler(route: APIRoute) -> str:
    return f"{route.endpoint.__module__}.{route.endpoint.__qualname__}"


class ThreadedRoute(APIRoute):
    """A route that runs a synchronous handler in a thread of the bulkhead ``RECORDS``."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        if not iscoroutinefunction(endpoint):
            endpoint = RECORDS.threaded(endpoint)
        super().__init__(path, endpoint, **options)

    @cached_property
    def access(self) -> Access:
        """Raise ``ValueError`` unless there is exactly one access rule."""
        accesses = find_accesses(self.dependant)
        if len(accesses) != 1:
            raise ValueError(
                f"{_name_handler(self)} must declare exactly one access rule, not {len(accesses)}"
            )
        return accesses[0]

    def get_route_handler(self) -> Handler:
        access = self.access
        handle = self.get_admitted_handler()

        async def handle_authorised(request: Request) -> Response:
            await access.admit(request)
            return await handle(request)

        return handle_authorised

    def get_admitted_handler(self) -> Handler:
        """Return the handler that runs after the access rule has admitted a request."""
        return super().get_route_handler()


class JsonRoute(ThreadedRoute):
    """A route that can accept a JSON body.

    If the handler declares a JSON body, bodies of other media types are refused. A handler that
    declares no body can read a form directly from the request.
    """

    @cached_property
    def known_names(self) -> KnownNames:
        return find_known_names(self)

    def get_admitted_handler(self) -> Handler:
        handle = super().get_admitted_handler()

        async def handle_json(request: Request) -> Response:
            if self.include_in_schema:
                await self._check_query_names(request)
            json_request = JsonRequest(request.scope, request.receive)
            if self.body_field is not None and await json_request.body():
                require_json_type(json_request)
                # Parse the body before FastAPI does, because FastAPI would turn the errors about
                # unknown fields and complex bodies into a general error.
                with suppress(JSONDecodeError):
                    await json_request.json()
            return await handle(json_request)

        return handle_json

    async def _check_query_names(self, request: Request) -> None:
        """Reject unknown query parameters in strict handling, or report them."""
        names = self.known_names
        unknown_names = find_unknown_query_names(request, names)
        if "prefer" not in request.headers or not preference_of(request).is_strict:
            report_ignored_names(request, unknown_names)
            begin_lenient_handling(request, names)
            return
        if unknown_names:
            if isinstance(self.access, TraceAccess):
                await self.access.count_refusal(request)
            raise build_unknown_names_error(unknown_names)
        begin_strict_handling(request, names)
