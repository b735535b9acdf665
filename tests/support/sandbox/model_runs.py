"""Records the requests to the sandbox's language model, separately for each test.

Each test sends its requests to a separate URL, called a run. If the name of a model ends with
`-once`, only the first request to the model gets a faulty response, and later requests succeed.
"""

import asyncio
import json
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter, Request, Response

from devstack.sandbox import llm as llm_router
from devstack.sandbox.llm import Behaviour, JsonBody, respond_correctly
from tests.support.sandbox.model_faults import WITH_FAULTS

_DISCONNECT_CHECK_SECONDS = 0.1
_ONCE = "-once"
_MAX_RUNS = 1000
_MAX_KEPT_REQUESTS = 20


@dataclass
class ModelRun:
    model: str | None = None
    calls: int = 0
    left: int = 0
    requests: deque[dict[str, Any]] = field(
        default_factory=lambda: deque(maxlen=_MAX_KEPT_REQUESTS)
    )
    _by_model: Counter[str] = field(default_factory=Counter)

    def note(self, body: dict[str, Any]) -> tuple[str, int]:
        """Record a request."""
        model = self.model or str(body.get("model", ""))
        self.calls += 1
        self._by_model[model] += 1
        self.requests.append(body)
        return model, self._by_model[model]

    def shown(self) -> dict[str, object]:
        return {
            "model": self.model,
            "calls": self.calls,
            "left": self.left,
            "requests": list(self.requests),
        }


class ModelRuns:
    def __init__(self) -> None:
        self._runs: OrderedDict[str, ModelRun] = OrderedDict()

    def named(self, name: str) -> ModelRun:
        if name not in self._runs:
            self._runs[name] = ModelRun()
            if len(self._runs) > _MAX_RUNS:
                self._runs.popitem(last=False)
        return self._runs[name]


def make_router() -> APIRouter:
    router, runs = llm_router.build_router(), ModelRuns()

    @router.post("/runs/{run}/v1/chat/completions")
    async def complete(request: Request, run: str, body: JsonBody) -> Response:
        body["_headers"] = dict(request.headers)
        model_run = runs.named(run)
        model, times = model_run.note(body)
        reply = _find_behaviour(model, times)(_add_schema(body))
        return await _unless_disconnected(request, model_run, reply)

    @router.get("/runs/{run}")
    async def show(run: str) -> dict[str, object]:
        return runs.named(run).shown()

    @router.put("/runs/{run}")
    async def set_model(run: str, body: JsonBody) -> dict[str, object]:
        runs.named(run).model = body.get("model")
        return runs.named(run).shown()

    return router


async def _unless_disconnected(
    request: Request, run: ModelRun, reply: Awaitable[Response]
) -> Response:
    """Return the model's reply, or cancel the reply if the caller closes the connection."""
    answering = asyncio.ensure_future(reply)
    while True:
        done, _ = await asyncio.wait({answering}, timeout=_DISCONNECT_CHECK_SECONDS)
        if done:
            return answering.result()
        if await request.is_disconnected():
            run.left += 1
            answering.cancel()
            return Response(status_code=499)


def _add_schema(body: dict[str, Any]) -> dict[str, Any]:
    """Return a request body with the JSON schema of the response in ``response_format``."""
    response_format = body.get("response_format") or {"type": "prompt"}
    system = str((body.get("messages") or [{}])[0].get("content", ""))
    start = system.find('{"')
    if "json_schema" in response_format or start < 0:
        return body
    schema = {"schema": json.JSONDecoder().raw_decode(system, start)[0]}
    return {**body, "response_format": {**response_format, "json_schema": schema}}


def _find_behaviour(model: str, times: int) -> Behaviour:
    """Return the function that answers a request to a model."""
    if model.endswith(_ONCE):
        model = model.removesuffix(_ONCE) if times == 1 else ""
    return WITH_FAULTS.get(model, ("", respond_correctly))[1]
