"""The resources of a worker process, and its work in progress."""

import os
from threading import Lock

from core.queues import Queue
from core.settings import Settings
from core.telemetry import spans
from storage.redis.request_work import RequestLeases, RequestWork
from storage.resources import open_resources
from workers.in_flight_work import InFlightWork
from workers.serving import Pool, Serving

# The queues whose work doesn't use the database.
_QUEUES_WITHOUT_DATABASE = {Queue.REQUEST, Queue.PHOTOS}


class WorkerContext:
    """The resources and the work in progress of a process, shared by all its threads.

    Resources connect to their servers at first use.
    """

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
        self.in_flight_work = InFlightWork()


def count_connections(serves: Serving) -> int:
    """Return the maximum number of database connections of a worker process.

    Each job needs one connection for its work and one for its heartbeat. In a process pool, each
    process has a third connection, because an import can apply two chunks at the same time.
    """
    if serves.pool is Pool.PREFORK:
        return 3
    job_limits = [
        limit for queue, limit in serves.limits.items() if queue not in _QUEUES_WITHOUT_DATABASE
    ]
    return max(2 * sum(job_limits), 1)


class ProcessContext:
    """Creates the ``WorkerContext`` of a process at first use.

    Pool processes create theirs after the fork, because processes must not share connections.
    """

    def __init__(self, settings: Settings, serves: Serving) -> None:
        self.serves = serves
        self.settings = settings
        self._lock = Lock()
        self._pid = 0
        self._context: WorkerContext | None = None

    @property
    def has_threads(self) -> bool:
        return self.serves.pool is Pool.THREADS

    def get(self) -> WorkerContext:
        with self._lock:
            if self._context is None or self._pid != os.getpid():
                spans.start_tracing(f"pressroom-worker-{'-'.join(self.serves.limits)}")
                self._context = WorkerContext(self.settings, self.serves)
                self._pid = os.getpid()
            return self._context
