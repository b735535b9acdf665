"""The resources and the work in progress of a worker process."""

import os
from threading import Lock

from core.queues import Queue
from core.settings import Settings
from core.telemetry import spans
from storage.redis.request_work import RequestLeases, RequestWork
from storage.resources import open_resources
from workers.in_flight_work import InFlightWork
from workers.serving import Pool, Serving

# The queues of request-only work, which doesn't use the database.
_QUEUES_WITHOUT_DATABASE = {Queue.REQUEST, Queue.PHOTOS}


class WorkerContext:
    """The resources and the work in progress of a process, which all its threads share.

    The resources of a process connect to their servers at first use.
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

    Each job needs a database connection for its work and a database connection for its heartbeat.
    In a process pool, each process has a third database connection, because an import may add two
    chunks of members at the same time.
    """
    if serves.pool is Pool.PREFORK:
        return 3
    job_limits = [
        limit for queue, limit in serves.limits.items() if queue not in _QUEUES_WITHOUT_DATABASE
    ]
    return max(2 * sum(job_limits), 1)


class ProcessContext:
    """A holder that creates the ``WorkerContext`` of a process at first use.

    A ``WorkerContext`` is created after the fork of a pool process, because connections must not be
    shared between processes.
    """

    def __init__(self, settings: Settings, serves: Serving) -> None:
        self.serves = serves
        self.settings = settings
        self._lock = Lock()
        self._pid = 0
        self._context: WorkerContext | None = None

    @property
    def has_threads(self) -> bool:
        """Return whether the worker runs jobs in threads instead of pool processes."""
        return self.serves.pool is Pool.THREADS

    def get(self) -> WorkerContext:
        with self._lock:
            if self._context is None or self._pid != os.getpid():
                spans.start_tracing(f"pressroom-worker-{'-'.join(self.serves.limits)}")
                self._context = WorkerContext(self.settings, self.serves)
                self._pid = os.getpid()
            return self._context
