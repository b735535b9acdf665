"""Request-only work in a worker: take the input, answer, tell the caller."""

from collections.abc import Callable
from typing import Any

from core.errors import DomainError, Kind, TransientError
from core.logging import get_logger
from storage.request_work import give_result, take_input
from workers import process

log = get_logger(__name__)

Answer = Callable[[dict[str, Any]], dict[str, Any]]


def answer_request(request_id: str, answer: Answer) -> None:
    resources = process.resources()
    payload = take_input(resources.redis, request_id)
    if payload is None:
        log.info("request.dropped", work=request_id)
        return
    give_result(resources.redis, request_id, _outcome(answer, payload))


def _outcome(answer: Answer, payload: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"result": answer(payload)}
    except DomainError as error:
        return _refusal(error)
    except TransientError as error:
        return _refusal(DomainError(Kind.UNAVAILABLE, "service.unavailable", str(error)))
    except Exception:
        # The caller waits: a failure untold would keep them until their time runs out.
        log.exception("request.broke")
        return _refusal(
            DomainError(Kind.PROVIDER_FAILED, "request.failed", "The work failed unexpectedly.")
        )


def _refusal(error: DomainError) -> dict[str, Any]:
    return {
        "error": {
            "kind": error.kind,
            "code": error.code,
            "message": error.message,
            "retry_after": error.retry_after,
        }
    }
