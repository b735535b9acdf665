"""The resources and the unfinished work of a worker process."""

import os
from threading import Lock

from core.queues import Queue
from core.settings import Settings
from core.telemetry import spans
from storage.redis.request_work import RequestLeases, RequestWork
from storage.resources import open_resources
from workers.held_work import HeldWork
from workers.serving import Pool, Serving

# Queues with request-only work, which doesn't use the database.
_WITHOUT_JOBS = {Queue.REQUEST, Queue.PHOTOS}


class WorkerContext:
    """The context of a process, which its threads share. Nothing connects before its first use."""

    def __init__(self, settings: Settings, serves: Serving) -> None:
        self.settings = settings
        self.serves = serves
        self.resources = open_resources(
            settings,
            concurrency=count_connections(serves),
            name=f"worker-{'-'.join(serves.limits)}",
        )
        self.resources.open_all()
        self.request_work = RequestWork(self.resources.redis)
        self.request_leases = RequestLeases()
        self.held = HeldWork()


def count_connections(serves: Serving) -> int:
    """Return how many connections to the database a process has at most.

    Each job needs one connection for its work and one for its heartbeat. A process of a pool has
    one more, for an import that adds two chunks of members at the same time.
    """
    if serves.pool is Pool.PREFORK:
        return 3
    jobs = sum(limit for queue, limit in serves.limits.items() if queue not in _WITHOUT_JOBS)
    return max(2 * jobs, 1)


class ProcessContext:
    """Creates a context per process, at the first use and therefore after any fork."""

    def __init__(self, settings: Settings, serves: Serving) -> None:
        self.serves = serves
        self.settings = settings
        self._lock = Lock()
        self._pid = 0
        self._context: WorkerContext | None = None

    @property
    def threads(self) -> bool:
        return self.serves.pool is Pool.THREADS

    def get(self) -> WorkerContext:
        with self._lock:
            if self._context is None or self._pid != os.getpid():
                spans.start_tracing(f"pressroom-worker-{'-'.join(self.serves.limits)}")
                self._context = WorkerContext(self.settings, self.serves)
                self._pid = os.getpid()
            return self._context
