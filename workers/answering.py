"""Request-only work in a worker: take the input, answer, tell those who wait."""

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from core.errors import DomainError, Kind, TransientError
from core.logging import get_logger
from storage.request_work import RENEW_EVERY_SECONDS, NobodyWaits, Question, RequestWork
from workers import process

log = get_logger(__name__)

Answer = Callable[[Question], dict[str, Any]]


def answer_request(request_id: str, answer: Answer) -> None:
    work = RequestWork(process.resources().redis)
    worker = secrets.token_urlsafe(12)
    taken = work.take(request_id, worker)
    if taken is None:
        log.info("request.dropped", work=request_id)
        return
    until = time.monotonic() + taken.seconds
    question = Question(taken.payload, work, request_id, worker, until)
    try:
        with _held(question):
            outcome = _outcome(answer, question)
    except NobodyWaits:
        log.info("request.abandoned", work=request_id)
        return
    work.finish(request_id, worker, outcome)


@contextmanager
def _held(question: Question) -> Iterator[None]:
    """Keep the lease, so that equal requests wait for this answer rather than for one of their
    own; and lose it with the process, so that they don't wait in vain."""
    stop = threading.Event()

    def renew() -> None:
        while not stop.wait(RENEW_EVERY_SECONDS):
            question.renew()

    thread = threading.Thread(target=renew, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _outcome(answer: Answer, question: Question) -> dict[str, Any]:
    try:
        return {"result": answer(question)}
    except NobodyWaits:
        raise
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
