"""The sandbox's language model: OpenAI's chat completions, answered without a model.

A model whose name begins with `sandbox-` has the fault that the rest of its name says. The page
lists these models.
"""

import asyncio
from collections.abc import Awaitable
from html import escape
from importlib.resources import files
from typing import Annotated, Any

from fastapi import APIRouter, Body, Request, Response
from fastapi.responses import HTMLResponse

from devstack.sandbox.llm.behaviours import BEHAVIOURS, ONCE, PREFIX, Behaviour, Behaviours, right
from devstack.sandbox.llm.runs import DEFAULT, ModelRun, ModelRuns
from devstack.sandbox.sandbox_settings import LLM_API_KEY, LLM_MODEL, LLM_PREFIX

_DISCONNECT_CHECK_SECONDS = 0.1

JsonBody = Annotated[dict[str, Any], Body()]


def make_router(behaviours: Behaviours = BEHAVIOURS) -> APIRouter:
    router = APIRouter()
    runs = ModelRuns()
    page = _page(behaviours)

    async def answer(request: Request, run: ModelRun, body: dict[str, Any]) -> Response:
        body["_headers"] = dict(request.headers)
        model, times = run.note(body)
        return await _unless_left(request, run, _behaviour(behaviours, model, times)(body))

    @router.get("", response_class=HTMLResponse)
    async def explain() -> str:
        return page

    @router.get("/v1/models")
    async def models() -> dict[str, object]:
        names = [LLM_MODEL, *(PREFIX + name for name in behaviours)]
        listed = [{"id": name, "object": "model", "owned_by": "sandbox"} for name in names]
        return {"object": "list", "data": listed}

    @router.post("/v1/chat/completions")
    async def complete(request: Request, body: JsonBody) -> Response:
        return await answer(request, runs.named(DEFAULT), body)

    @router.post("/runs/{run}/v1/chat/completions")
    async def complete_in_run(request: Request, run: str, body: JsonBody) -> Response:
        return await answer(request, runs.named(run), body)

    _add_runs(router, runs)
    return router


def _add_runs(router: APIRouter, runs: ModelRuns) -> None:
    @router.get("/runs/{run}")
    async def show(run: str) -> dict[str, object]:
        return runs.named(run).shown()

    @router.put("/runs/{run}")
    async def set_model(run: str, body: JsonBody) -> dict[str, object]:
        runs.named(run).model = body.get("model")
        return runs.named(run).shown()

    @router.delete("/runs/{run}", status_code=204)
    async def forget(run: str) -> None:
        runs.forget(run)


async def _unless_left(request: Request, run: ModelRun, reply: Awaitable[Response]) -> Response:
    """The reply, given up once its caller has hung up."""
    answering = asyncio.ensure_future(reply)
    while True:
        done, _ = await asyncio.wait({answering}, timeout=_DISCONNECT_CHECK_SECONDS)
        if done:
            return answering.result()
        if await request.is_disconnected():
            run.left += 1
            answering.cancel()
            return Response(status_code=499)


def _behaviour(behaviours: Behaviours, model: str, times: int) -> Behaviour:
    """How a model answers the `times`-th request that a run sends to it."""
    name = model.removeprefix(PREFIX)
    if name.endswith(ONCE):
        name = name.removesuffix(ONCE) if times == 1 else ""
    return behaviours[name][1] if name in behaviours else right


def _page(behaviours: Behaviours) -> str:
    template = (files("devstack.sandbox.llm") / "llm.html").read_text(encoding="utf-8")
    rows = "".join(
        f"<tr><td><code>{escape(PREFIX + name)}</code></td><td>{meaning}</td></tr>"
        for name, (meaning, _) in behaviours.items()
    )
    for name, value in (
        ("prefix", LLM_PREFIX),
        ("model", LLM_MODEL),
        ("key", LLM_API_KEY),
        ("once", ONCE),
        ("models", rows),
    ):
        template = template.replace("{{ " + name + " }}", value)
    return template
