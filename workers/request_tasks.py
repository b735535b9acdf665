"""Request-only work in a worker: take the input, answer it, and tell the waiting callers."""

import secrets
import time
from collections.abc import Callable
from typing import Any

from core.errors import DomainError, TransientError
from core.logging import get_logger
from core.refusals.requests import REQUEST_FAILED, SERVICE_UNREACHABLE
from storage.redis.request_work import (
    AllCallersLeft,
    RequestLease,
    RequestWork,
)
from workers.context import WorkerContext

log = get_logger(__name__)

RequestHandler = Callable[[WorkerContext, RequestLease], dict[str, Any]]


def answer_request(context: WorkerContext, request_id: str, answer: RequestHandler) -> None:
    work = RequestWork(context.resources.redis)
    worker = secrets.token_urlsafe(12)
    taken = work.take(request_id, worker)
    if taken is None:
        log.info("request.dropped", work=request_id)
        return
    until = time.monotonic() + taken.seconds
    question = RequestLease(taken.payload, work, request_id, worker, until)
    try:
        with context.request_leases.kept(question):
            outcome = _outcome(context, answer, question)
    except AllCallersLeft:
        log.info("request.abandoned", work=request_id)
        return
    work.finish(request_id, worker, outcome)


def _outcome(
    context: WorkerContext, answer: RequestHandler, question: RequestLease
) -> dict[str, Any]:
    try:
        return {"result": answer(context, question)}
    except AllCallersLeft:
        raise
    except DomainError as error:
        return _refusal(error)
    except TransientError as error:
        return _refusal(SERVICE_UNREACHABLE(reason=error))
    except Exception:  # untold, a failure would keep the callers waiting until their time is out
        log.exception("request.broke")
        return _refusal(REQUEST_FAILED())


def _refusal(error: DomainError) -> dict[str, Any]:
    return {
        "error": {
            "kind": error.kind,
            "code": error.code,
            "message": error.message,
            "retry_after": error.retry_after,
        }
    }
