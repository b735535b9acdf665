"""Request-only work in a worker: take the input, answer it, and tell the waiting callers."""

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from core.errors import DomainError, Kind, TransientError
from core.logging import get_logger
from storage.request_work import RENEW_EVERY_SECONDS, AllCallersLeft, RequestLease, RequestWork
from workers import context

log = get_logger(__name__)

RequestHandler = Callable[[RequestLease], dict[str, Any]]


def answer_request(request_id: str, answer: RequestHandler) -> None:
    work = RequestWork(context.resources().redis)
    worker = secrets.token_urlsafe(12)
    taken = work.take(request_id, worker)
    if taken is None:
        log.info("request.dropped", work=request_id)
        return
    until = time.monotonic() + taken.seconds
    question = RequestLease(taken.payload, work, request_id, worker, until)
    try:
        with _leases.kept(question):
            outcome = _outcome(answer, question)
    except AllCallersLeft:
        log.info("request.abandoned", work=request_id)
        return
    work.finish(request_id, worker, outcome)


class _Leases:
    """Renews the leases of this process's work, so that equal requests wait for its answers. The
    leases end with the process, so that no caller waits for the answer of a dead worker."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, RequestLease] = {}
        self._keeper: threading.Thread | None = None

    @contextmanager
    def kept(self, question: RequestLease) -> Iterator[None]:
        with self._lock:
            self._held[question.worker] = question
            # Not started before: threads don't survive the fork that makes a worker's process.
            if self._keeper is None:
                self._keeper = threading.Thread(target=self._keep, daemon=True)
                self._keeper.start()
        try:
            yield
        finally:
            with self._lock:
                del self._held[question.worker]

    def _keep(self) -> None:
        while True:
            time.sleep(RENEW_EVERY_SECONDS)
            with self._lock:
                held = list(self._held.values())
            for question in held:
                question.renew()


_leases = _Leases()


def _outcome(answer: RequestHandler, question: RequestLease) -> dict[str, Any]:
    try:
        return {"result": answer(question)}
    except AllCallersLeft:
        raise
    except DomainError as error:
        return _refusal(error)
    except TransientError as error:
        return _refusal(DomainError(Kind.UNAVAILABLE, "service.unavailable", str(error)))
    except Exception:  # untold, a failure would keep the callers waiting until their time is out
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
