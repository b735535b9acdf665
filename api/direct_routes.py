"""Routes for which FastAPI works nothing out: for the smallest and most frequent of requests."""

import inspect
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from fastapi import Request
from fastapi.responses import Response
from fastapi.routing import APIRoute
from starlette.routing import request_response

from api.access.requirements import ScopedCredential
from services.access.caller import Caller

# Raises what a caller is refused for.
Authorise = Callable[[], Caller]


class DirectRoute(APIRoute):
    """A route whose endpoint takes ``request`` and ``authorise``, the check of its ``Access``.

    The endpoint calls that check first thing, in the thread that it works in anyway: a change of
    threads costs as much as a small statement, and to resolve dependencies costs as much again.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        # FastAPI's own keeps stacks of what dependencies leave open; here is none.
        self.app = request_response(self.get_route_handler())

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        endpoint = self.endpoint
        assert list(inspect.signature(endpoint).parameters) == ["request", "authorise"]
        [dependency] = self.dependant.dependencies
        access = dependency.call
        assert isinstance(access, ScopedCredential)

        async def handle(request: Request) -> Response:
            answer: Response = await endpoint(request, partial(access.authorise, request))
            return answer

        return handle
