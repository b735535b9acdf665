"""Request-only work in a worker: take the payload, do the work, answer the callers that wait."""

import secrets
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from redis.exceptions import RedisError

from core.errors import DomainError, TransientError
from core.lanes import RequestKind
from core.logging import get_logger
from core.refusals.requests import REQUEST_FAILED, SERVICE_UNREACHABLE
from core.telemetry import spans
from storage.redis.request_work import AllCallersLeft, RequestLease
from workers.context import WorkerContext
from workers.running.held_work import Held

log = get_logger(__name__)

RequestHandler = Callable[[WorkerContext, RequestLease], dict[str, Any]]


# No caller waits for longer.
MAX_REQUEST_SECONDS = 60.0


def answer_request(
    context: WorkerContext, *, request_id: str, kind: RequestKind, answer: RequestHandler
) -> None:
    work = context.request_work
    worker = secrets.token_urlsafe(12)
    lease = work.take(request_id, worker)
    if lease is None:
        log.info("request.dropped", work=request_id)
        return
    held = Held(time.monotonic() + MAX_REQUEST_SECONDS, partial(_give_back, context, kind, lease))
    outcome: dict[str, Any]
    about: spans.Attributes = {"pressroom.request.kind": kind.task}
    try:
        with (
            spans.work_span(f"request {kind.task}", lease.traceparent, about),
            context.held.holding(held),
            context.request_leases.kept(lease, until=held.deadline),
        ):
            outcome = {"result": answer(context, lease)}
    except AllCallersLeft:
        log.info("request.abandoned", work=request_id)
        return
    except DomainError as error:
        outcome = _refusal(error)
    except TransientError as error:
        outcome = _refusal(SERVICE_UNREACHABLE(reason=error))
    except Exception:  # without an answer, the callers would wait until their time is over
        log.exception("request.broke")
        outcome = _refusal(REQUEST_FAILED())
    work.finish(request_id, worker, outcome)


def _give_back(context: WorkerContext, kind: RequestKind, lease: RequestLease) -> None:
    """Without this a caller would wait for a worker that has stopped until its time is over."""
    try:
        if lease.give_back():
            context.resources.broker.send(kind.task, kind.lane, {"request_id": lease.request_id})
            log.info("request.handed_back", work=lease.request_id)
    except RedisError as error:
        log.warning("request.not_handed_back", reason=type(error).__name__)


def _refusal(error: DomainError) -> dict[str, Any]:
    return {
        "error": {
            "kind": error.kind,
            "code": error.code,
            "message": error.message,
            "retry_after": error.retry_after,
        }
    }
