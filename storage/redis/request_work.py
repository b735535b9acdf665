"""The working side of request-only work: a worker takes it, renews its lease, and answers."""

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
from storage.redis.notifications import CHANNEL, message, result_topic
from storage.redis.request_scripts import keys, milliseconds

log = get_logger(__name__)

RESULT_SECONDS = 60
LEASE_SECONDS = 5.0
RENEW_EVERY_SECONDS = 1.0

# A larger result is only announced, and fetched by the processes whose callers wait for it.
_MAX_ANNOUNCED_CHARACTERS = 8 * 1024


class AllCallersLeft(Exception):
    """Every caller has left, so the work is worth nothing any more."""


class RequestWork:
    def __init__(self, client: redis.Redis) -> None:
        self._take = client.register_script(request_scripts.TAKE)
        self._attend = client.register_script(request_scripts.ATTEND)
        self._renew = client.register_script(request_scripts.RENEW)
        self._finish = client.register_script(request_scripts.FINISH)
        self._give_back = client.register_script(request_scripts.GIVE_BACK)

    def take(self, request_id: str, worker: str) -> "RequestLease | None":
        """Take the work; ``None`` when no caller waits for it, or another worker has taken it."""
        found = self._take(keys(request_id), [worker, milliseconds(LEASE_SECONDS)])
        if found is None:
            return None
        text, patience = found
        until = time.monotonic() + patience / 1000
        return RequestLease(orjson.loads(text), self, request_id, worker, until)

    def attend(self, request_id: str, worker: str) -> float:
        """Renew the lease, or take it again.

        Returns for how many seconds the most patient caller still waits: 0 when none does, or
        another worker has the lease.
        """
        left = self._attend(keys(request_id), [worker, milliseconds(LEASE_SECONDS)])
        return float(left) / 1000

    def renew(self, request_id: str, worker: str) -> None:
        """Renew the lease if this worker still holds it."""
        self._renew(keys(request_id), [worker, milliseconds(LEASE_SECONDS)])

    def give_back(self, request_id: str, worker: str, payload: dict[str, Any]) -> bool:
        """Leave the work to another worker; returns whether a message must be sent."""
        text = orjson.dumps(payload)
        return bool(self._give_back(keys(request_id), [worker, text]))

    def finish(self, request_id: str, worker: str, result: dict[str, Any]) -> None:
        """Give the result to the callers that wait."""
        text = orjson.dumps(result).decode()
        told = text if len(text) <= _MAX_ANNOUNCED_CHARACTERS else ""
        word = message(result_topic(request_id), told)
        self._finish(keys(request_id), [worker, text, RESULT_SECONDS, CHANNEL, word])


@dataclass(frozen=True)
class RequestLease:
    """A worker's hold on request-only work, with its input."""

    payload: dict[str, Any]
    work: RequestWork
    request_id: str
    worker: str
    # When the most patient caller stops waiting, by the monotonic clock; as known at the taking.
    until: float

    @property
    def traceparent(self) -> str | None:
        """The span of the caller who asked first."""
        return self.payload.get(request_scripts.TRACEPARENT)

    def seconds_left(self) -> float:
        """How long a caller still waits; raises ``AllCallersLeft``. Ask before each costly step."""
        try:
            left = self.work.attend(self.request_id, self.worker)
        except RedisError as error:
            log.warning("request.not_attended", reason=type(error).__name__)
            left = self.until - time.monotonic()
        if left <= 0:
            raise AllCallersLeft
        return left

    def give_back(self) -> bool:
        return self.work.give_back(self.request_id, self.worker, self.payload)

    def renew(self) -> None:
        try:
            self.work.renew(self.request_id, self.worker)
        except RedisError as error:
            # A lease outlasts a few lost renewals; after it another worker may begin the work.
            log.warning("request.lease_not_renewed", reason=type(error).__name__)


class RequestLeases:
    """Renews the leases of the requests that this process works at.

    While a lease holds, equal requests wait for this process's result instead of starting a run of
    their own. The leases end with the process, so that no request waits for a process that is gone.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, tuple[RequestLease, float]] = {}
        self._keeper: threading.Thread | None = None

    @contextmanager
    def kept(self, lease: RequestLease, *, until: float) -> Iterator[None]:
        """Keep the lease while the block lasts, at most until then by the monotonic clock."""
        with self._lock:
            self._held[lease.worker] = lease, until
            if self._keeper is None:
                self._keeper = threading.Thread(target=self._keep, daemon=True)
                self._keeper.start()
        try:
            yield
        finally:
            with self._lock:
                del self._held[lease.worker]

    def _keep(self) -> None:
        while True:
            time.sleep(RENEW_EVERY_SECONDS)
            with self._lock:
                held = list(self._held.values())
            for lease, until in held:
                if time.monotonic() < until:
                    lease.renew()
