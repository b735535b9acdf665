"""The sandbox's language model: OpenAI's chat completions, answered without a model.

A model whose name begins with `sandbox-` has the fault that the rest of its name says. The page
lists these models.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Body, Response
from fastapi.responses import HTMLResponse

from devstack.sandbox.llm.behaviours import BEHAVIOURS, right
from devstack.sandbox.sandbox_settings import LLM_API_KEY, LLM_MODEL, LLM_PREFIX
from devstack.sandbox.templates import render

JsonBody = Annotated[dict[str, Any], Body()]


def make_router() -> APIRouter:
    router = APIRouter()
    # The calls so far, and the model that answers them; None for the one that a call names.
    run: dict[str, Any] = {"model": None, "calls": 0}

    @router.get("", response_class=HTMLResponse)
    async def explain() -> str:
        shown = {"prefix": LLM_PREFIX, "model": LLM_MODEL, "key": LLM_API_KEY}
        return render("llm/llm.html", behaviours=BEHAVIOURS, **shown)

    @router.post("/v1/chat/completions")
    async def complete(body: JsonBody) -> Response:
        run["calls"] += 1
        return await BEHAVIOURS.get(run["model"] or body.get("model", ""), ("", right))[1](body)

    @router.get("/runs/default")
    async def show() -> dict[str, Any]:
        return run

    @router.put("/runs/default")
    async def set_model(body: JsonBody) -> dict[str, Any]:
        run["model"] = body.get("model")
        return run

    return router
