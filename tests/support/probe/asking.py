"""Runs the API with an extra route `/ask`, or a worker that answers the requests to this route.

``python -m tests.support.probe.asking api PORT`` starts the API with the extra route `/ask`.
``python -m tests.support.probe.asking worker`` starts the worker that answers the requests. The
worker counts in Redis how many requests it has started to answer.
"""

import os
import sys
import time
from typing import Annotated, Any

import uvicorn
from fastapi import APIRouter, Request

from api.app import create_app
from api.auth.requirements import requires_scope
from api.route_classes import JsonRoute
from api.schemas.envelope import Envelope, build_envelope
from api.state import StateOf
from api.waiting.disconnects import run_while_connected
from core.errors import DomainError, Kind, TransientError
from core.log_output import configure_logging
from core.permissions import Permission
from core.queues import Queue, RequestKind
from core.scopes import Scope
from core.settings import load_settings
from services.access.caller import Caller
from services.jobs.kinds import register_request_kind
from storage.redis import request_calls
from storage.redis.request_work import RequestLease
from storage.resources import Resources
from workers.main import run_worker
from workers.serving import plan_serving

# The Redis key ``TAKEN_KEY`` counts the requests to `/ask` that the worker has begun to answer. The
# worker answers a request in steps, and ``STEPS_KEY`` counts the steps of all requests.
TAKEN_KEY = "probe:taken"
STEPS_KEY = "probe:steps"
router = APIRouter(route_class=JsonRoute)


def answer(resources: Resources, lease: RequestLease) -> dict[str, Any]:
    """Run as many steps as a request to `/ask` demands, and return the text in the request."""
    question = lease.payload
    resources.redis.incr(TAKEN_KEY)
    for _ in range(question["steps"]):
        lease.seconds_left()
        resources.redis.incr(STEPS_KEY)
        time.sleep(question["sleep"])
    match question["end"]:
        case "refuse":
            raise DomainError(Kind.UNAVAILABLE, "probe.busy", "Ask again.", retry_after=7)
        case "pass":
            raise TransientError("a moment")
        case "break":
            raise ZeroDivisionError
    return {"echo": question["text"]}


ASKING = register_request_kind(RequestKind("probe.answer", Queue.REQUEST), answer)


@router.post("/ask")
async def ask(
    request: Request,
    state: StateOf,
    caller: Annotated[Caller, requires_scope(Scope.COMPOSER, Permission.COMPOSER)],
    *,
    text: str = "",
    sleep: float = 0.0,
    steps: int = 1,
    same: str | None = None,
    end: str = "",
    seconds: float = 20.0,
) -> Envelope[dict[str, Any]]:
    question = {"text": text, "sleep": sleep, "steps": steps, "end": end}
    call = state.worker_calls.call(
        ASKING, question, seconds=seconds, account_id=caller.account_id, shared_key=same
    )
    return build_envelope(await run_while_connected(request.receive, call))


# Let requests wait in the queue for a shorter time than in production, so that a test can overload
# the queue quickly.
request_calls.MAX_QUEUED_SECONDS = float(os.environ.get("PROBE_MAX_LINE_SECONDS", "10"))

if __name__ == "__main__":
    if sys.argv[1] == "worker":
        os.environ.setdefault("REMAP_SIGTERM", "SIGQUIT")
        run_worker(plan_serving([Queue.REQUEST], 2))
    configure_logging(load_settings())
    app = create_app(load_settings())
    app.include_router(router)
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_config=None)
