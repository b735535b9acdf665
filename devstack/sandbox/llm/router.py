"""Language model: chat completions as OpenAI's protocol has them.

The name of the model says in plain words what goes wrong; `BEHAVIOURS` lists them and the page
shows it.
"""

import asyncio
from html import escape
from importlib.resources import files
from typing import Annotated, Any

from fastapi import APIRouter, Body, Request, Response
from fastapi.responses import HTMLResponse

from devstack.sandbox.llm.behaviours import BEHAVIOURS, ONCE, PREFIX, behaviour
from devstack.sandbox.llm.runs import DEFAULT, ModelRun, ModelRuns
from devstack.sandbox.llm_settings import MODEL, SANDBOX_API_KEY, SANDBOX_PREFIX

_LOOKS_EVERY_SECONDS = 0.1

JsonBody = Annotated[dict[str, Any], Body()]


def make_router() -> APIRouter:
    router = APIRouter()
    runs = ModelRuns()
    page = _page()

    @router.get("", response_class=HTMLResponse)
    async def explain() -> str:
        return page

    @router.get("/v1/models")
    async def models() -> dict[str, object]:
        names = [MODEL, *(PREFIX + name for name in BEHAVIOURS)]
        listed = [{"id": name, "object": "model", "owned_by": "sandbox"} for name in names]
        return {"object": "list", "data": listed}

    @router.post("/v1/chat/completions")
    async def answer(request: Request, body: JsonBody) -> Response:
        return await _answer(request, runs.named(DEFAULT), body)

    @router.post("/runs/{run}/v1/chat/completions")
    async def answer_in_run(request: Request, run: str, body: JsonBody) -> Response:
        return await _answer(request, runs.named(run), body)

    @router.get("/runs/{run}")
    async def show(run: str) -> dict[str, object]:
        return runs.named(run).shown()

    @router.put("/runs/{run}")
    async def steer(run: str, body: JsonBody) -> dict[str, object]:
        runs.named(run).model = body.get("model")
        return runs.named(run).shown()

    @router.delete("/runs/{run}", status_code=204)
    async def forget(run: str) -> None:
        runs.forget(run)

    return router


async def _answer(request: Request, run: ModelRun, body: dict[str, Any]) -> Response:
    body["_headers"] = dict(request.headers)
    model, times = run.note(body)
    answering = asyncio.ensure_future(behaviour(model, times)(body))
    while True:
        done, _ = await asyncio.wait({answering}, timeout=_LOOKS_EVERY_SECONDS)
        if done:
            return answering.result()
        if await request.is_disconnected():
            run.left += 1
            answering.cancel()
            return Response(status_code=499)


def _page() -> str:
    template = (files("devstack.sandbox.llm") / "llm.html").read_text(encoding="utf-8")
    rows = "".join(
        f"<tr><td><code>{escape(PREFIX + name)}</code></td><td>{meaning}</td></tr>"
        for name, (meaning, _) in BEHAVIOURS.items()
    )
    for name, value in (
        ("prefix", SANDBOX_PREFIX),
        ("model", MODEL),
        ("key", SANDBOX_API_KEY),
        ("once", ONCE),
        ("models", rows),
    ):
        template = template.replace("{{ " + name + " }}", value)
    return template
