"""Leases request-only work to a worker, and delivers the results to the API callers."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import orjson
import redis
from redis.exceptions import RedisError

from core.logging import get_logger
from storage.redis import request_scripts
from storage.redis.notifications import CHANNEL, build_notification, build_result_topic
from storage.redis.request_scripts import build_keys, to_milliseconds

log = get_logger(__name__)

RESULT_SECONDS = 60
LEASE_SECONDS = 5.0
RENEW_EVERY_SECONDS = 1.0

# The maximum length of a result in a notification. If a result is too long for a notification, API
# processes fetch the result from Redis.
_MAX_ANNOUNCED_CHARACTERS = 8 * 1024


class AllCallersLeft(Exception):
    """Raised in a worker that should stop because no caller waits for its request anymore."""


class RequestWork:
    def __init__(self, client: redis.Redis) -> None:
        self._take = client.register_script(request_scripts.TAKE_SCRIPT)
        self._renew_for_callers = client.register_script(request_scripts.RENEW_FOR_CALLERS_SCRIPT)
        self._renew = client.register_script(request_scripts.RENEW_SCRIPT)
        self._finish = client.register_script(request_scripts.FINISH_SCRIPT)
        self._release = client.register_script(request_scripts.RELEASE_SCRIPT)

    def take(self, request_id: str, worker: str) -> "RequestLease | None":
        """Return ``None`` if no caller waits for the request or if it is already leased."""
        response = self._take(build_keys(request_id), [worker, to_milliseconds(LEASE_SECONDS)])
        if response is None:
            return None
        text, longest_wait = response
        until = time.monotonic() + longest_wait / 1000
        return RequestLease(orjson.loads(text), self, request_id, worker, until)

    def renew_for_callers(self, request_id: str, worker: str) -> float:
        """Renew even an expired lease. Return how many seconds the last caller will wait, or 0 if
        no caller waits or another worker has the lease.
        """
        longest_wait = self._renew_for_callers(
            build_keys(request_id), [worker, to_milliseconds(LEASE_SECONDS)]
        )
        return float(longest_wait) / 1000

    def renew(self, request_id: str, worker: str) -> None:
        self._renew(build_keys(request_id), [worker, to_milliseconds(LEASE_SECONDS)])

    def release(self, request_id: str, worker: str, payload: dict[str, Any]) -> bool:
        """End the lease, and return whether the worker must requeue the request."""
        text = orjson.dumps(payload)
        return bool(self._release(build_keys(request_id), [worker, text]))

    def finish(self, request_id: str, worker: str, result: dict[str, Any]) -> None:
        text = orjson.dumps(result).decode()
        announced_text = text if len(text) <= _MAX_ANNOUNCED_CHARACTERS else ""
        notification = build_notification(build_result_topic(request_id), announced_text)
        self._finish(build_keys(request_id), [worker, text, RESULT_SECONDS, CHANNEL, notification])


@dataclass(frozen=True)
class RequestLease:
    """A worker's lease on request-only work, with the input of the work.

    ``until`` is the monotonic time when the last caller stops waiting. Callers who started to wait
    after the worker took the lease don't count.
    """

    payload: dict[str, Any]
    work: RequestWork
    request_id: str
    worker: str
    until: float

    @property
    def traceparent(self) -> str | None:
        return self.payload.get(request_scripts.TRACEPARENT)

    def seconds_left(self) -> float:
        """Renew the lease, and return the number of seconds until the last caller stops waiting.

        Call this method before each expensive step, so that the work stops when no caller waits any
        longer. Raises ``AllCallersLeft``.
        """
        try:
            seconds = self.work.renew_for_callers(self.request_id, self.worker)
        except RedisError as error:
            log.warning("request.not_attended", reason=type(error).__name__)
            seconds = self.until - time.monotonic()
        if seconds <= 0:
            raise AllCallersLeft
        return seconds

    def release(self) -> bool:
        return self.work.release(self.request_id, self.worker, self.payload)

    def renew(self) -> None:
        try:
            self.work.renew(self.request_id, self.worker)
        except RedisError as error:
            # The lease outlasts a few failed renewals. After the lease has expired, another worker
            # can start the request again.
            log.warning("request.lease_not_renewed", reason=type(error).__name__)


class RequestLeases:
    """The leases of the requests that this process is running.

    A lease expires soon after its process has ended, so that no caller waits for a dead process.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._deadlines: dict[str, tuple[RequestLease, float]] = {}
        self._renewal_thread: threading.Thread | None = None

    @contextmanager
    def keep_renewed(self, lease: RequestLease, *, until: float) -> Iterator[None]:
        """Renew a lease during the ``with`` block, but not after the monotonic time ``until``."""
        with self._lock:
            self._deadlines[lease.worker] = (lease, until)
            if self._renewal_thread is None:
                self._renewal_thread = threading.Thread(target=self._renew_regularly, daemon=True)
                self._renewal_thread.start()
        try:
            yield
        finally:
            with self._lock:
                del self._deadlines[lease.worker]

    def _renew_regularly(self) -> None:
        while True:
            time.sleep(RENEW_EVERY_SECONDS)
            with self._lock:
                leases = list(self._deadlines.values())
            for lease, until in leases:
                if time.monotonic() < until:
                    lease.renew()
