"""Request-only work in a worker: take the payload, do the work, answer the callers that wait."""

import secrets
from collections.abc import Callable
from typing import Any

from core.errors import DomainError, TransientError
from core.logging import get_logger
from core.refusals.requests import REQUEST_FAILED, SERVICE_UNREACHABLE
from storage.redis.request_work import AllCallersLeft, RequestLease
from workers.context import WorkerContext

log = get_logger(__name__)

RequestHandler = Callable[[WorkerContext, RequestLease], dict[str, Any]]


def answer_request(context: WorkerContext, *, request_id: str, answer: RequestHandler) -> None:
    work = context.request_work
    worker = secrets.token_urlsafe(12)
    lease = work.take(request_id, worker)
    if lease is None:
        log.info("request.dropped", work=request_id)
        return
    outcome: dict[str, Any]
    try:
        with context.request_leases.kept(lease):
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


def _refusal(error: DomainError) -> dict[str, Any]:
    return {
        "error": {
            "kind": error.kind,
            "code": error.code,
            "message": error.message,
            "retry_after": error.retry_after,
        }
    }
