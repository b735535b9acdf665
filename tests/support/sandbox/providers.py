"""Adds faults to the providers that the sandbox simulates, and records searches for photos.

Test stacks run ``python -m tests.support.sandbox``, which starts the sandbox with faults that only
tests need. `make run` starts the sandbox without the faults that only tests need.
"""

from collections import deque
from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse

from devstack.sandbox import challenges, stock_photos
from devstack.sandbox.app import PROVIDERS, STRIPE, SandboxProvider
from devstack.sandbox.sandbox_settings import (
    CHALLENGES_PREFIX,
    LLM_PREFIX,
    OPENVERSE_PREFIX,
    STRIPE_PREFIX,
    UNSPLASH_PREFIX,
)
from devstack.sandbox.stock_photos import FAULTS, Faults
from tests.support.sandbox import model_runs
from tests.support.sandbox.challenge_faults import FaultyChallenge
from tests.support.sandbox.stripe_strictness import strict_router

PHOTO_FAULTS: Faults = {
    **FAULTS,
    "missing": lambda _: JSONResponse({"errors": ["Couldn't find Photo"]}, 404),
}


def _recorded(router: APIRouter) -> APIRouter:
    """Return a copy of ``router`` that records all requests, except requests for pictures.

    `GET /calls` returns the recorded requests, newest last. `DELETE /calls` removes all recorded
    requests.
    """
    recorded = APIRouter()
    requests: deque[dict[str, Any]] = deque(maxlen=2000)

    async def record(request: Request) -> None:
        if "/pictures/" not in request.url.path:
            requests.append({"path": request.url.path, "query": dict(request.query_params)})

    recorded.include_router(router, dependencies=[Depends(record)])

    @recorded.get("/calls")
    async def show() -> list[dict[str, Any]]:
        return list(requests)

    @recorded.delete("/calls")
    async def forget() -> None:
        requests.clear()

    return recorded


_ROUTERS = {
    CHALLENGES_PREFIX: challenges.build_router(lambda provider: FaultyChallenge(provider).verify),
    LLM_PREFIX: model_runs.make_router(),
    UNSPLASH_PREFIX: _recorded(stock_photos.build_unsplash_router(PHOTO_FAULTS)),
    STRIPE_PREFIX: strict_router(STRIPE),
    OPENVERSE_PREFIX: stock_photos.build_openverse_router(PHOTO_FAULTS),
}

PROVIDERS_WITH_FAULTS: tuple[SandboxProvider, ...] = tuple(
    replace(each, router=_ROUTERS.get(each.path, each.router)) for each in PROVIDERS
)
