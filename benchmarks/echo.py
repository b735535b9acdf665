"""Starts an API process or a worker for benchmarks of the request queue.

``python -m benchmarks.echo api PORT`` starts the API with an additional route that enqueues an
empty task. ``python -m benchmarks.echo worker`` starts a Pressroom worker. ``python -m
benchmarks.echo bare`` starts a plain Celery worker as the baseline.
"""

import os
import sys
import time
from typing import Annotated, Any

import uvicorn
from celery import Celery
from fastapi import APIRouter, Request

from api.app import create_app
from api.auth.requirements import requires_scope
from api.route_classes import ThreadedRoute
from api.schemas.envelope import Envelope, build_envelope
from api.state import StateOf
from api.waiting.disconnects import run_while_connected
from core.log_output import configure_logging
from core.permissions import Permission
from core.queues import Queue, RequestKind
from core.scopes import Scope
from core.settings import Settings, load_settings
from services.access.caller import Caller
from services.jobs.kinds import register_request_kind
from storage.redis.request_work import RequestLease
from storage.resources import Resources
from workers.main import run_worker
from workers.serving import plan_serving

BARE_QUEUE = "benchmark.bare"
THREADS = 16
router = APIRouter(route_class=ThreadedRoute)


def echo(_: Resources, lease: RequestLease) -> dict[str, Any]:
    time.sleep(lease.payload["seconds"])
    return lease.payload


ECHO = register_request_kind(RequestKind("benchmark.echo", Queue.REQUEST), echo)


@router.post("/echo")
async def echo_route(
    request: Request,
    state: StateOf,
    _: Annotated[Caller, requires_scope(Scope.COMPOSER, Permission.COMPOSER)],
    seconds: float = 0.0,
) -> Envelope[dict[str, Any]]:
    """Enqueue a task in the request queue, and wait for its result, as the product's routes do."""
    call = state.worker_calls.call(ECHO, {"seconds": seconds}, seconds=30)
    return build_envelope(await run_while_connected(request.receive, call))


def bare_app(settings: Settings) -> Celery:
    """Return a Celery application as in Celery's tutorial, with results in Redis."""
    url = settings.broker
    app = Celery("bare", broker=url, backend=url)
    app.conf.task_default_queue = BARE_QUEUE

    @app.task(name="bare.echo")  # type: ignore[untyped-decorator]
    def bare_echo(payload: dict[str, Any]) -> dict[str, Any]:
        return payload

    return app


def main(role: str, *words: str) -> None:
    settings = load_settings()
    configure_logging(settings)
    if role == "api":
        app = create_app(settings)
        app.include_router(router)
        # Match the benchmark's route before all other routes, because matching it last makes a
        # request 5 % slower.
        app.router.routes.insert(0, app.router.routes.pop())
        uvicorn.run(app, host="127.0.0.1", port=int(words[0]), log_config=None)
    elif role == "worker":
        run_worker(plan_serving([Queue.REQUEST], THREADS))
    else:
        options = ["--pool=threads", f"--concurrency={THREADS}", "--loglevel=WARNING"]
        app = bare_app(settings)
        app.conf.worker_hijack_root_logger = False
        ready_file = os.environ["PRESSROOM_READY_FILE"]
        _touch_when_ready(ready_file)
        app.worker_main(["worker", *options])


def _touch_when_ready(path: str) -> None:
    from pathlib import Path

    from celery.signals import worker_ready

    worker_ready.connect(lambda **_: Path(path).touch(), weak=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
