"""Determines which queues a worker serves, and how many jobs of each queue run concurrently."""

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from core.queues import Queue

# The I/O-bound queues, with the maximum number of concurrent jobs per process.
_WAITING = {
    Queue.REQUEST: 16,
    Queue.PHOTOS: 8,
    Queue.MONEY: 4,
    Queue.MAIL: 6,
    Queue.WEBHOOKS: 8,
    Queue.MAINTENANCE: 2,
}
# The CPU-bound queues, with the maximum number of concurrent jobs per process.
_COMPUTING = {Queue.EXPORT: 1, Queue.MEDIA: os.cpu_count() or 1, Queue.BULK: 1}


class Pool(StrEnum):
    # Threads for I/O-bound jobs.
    THREADS = "threads"
    # Processes for CPU-bound jobs.
    PREFORK = "prefork"


class IncompatibleQueues(ValueError):
    """A single worker can't serve queues that need different kinds of pools."""


@dataclass(frozen=True)
class Serving:
    """The queues of a worker, and its kind of pool.

    Each queue has a separate limit of concurrent jobs, so that a hanging remote server delays only
    the jobs of one queue. Long computations run in processes, because in a thread they would delay
    all other threads.
    """

    pool: Pool
    limits: Mapping[Queue, int]

    @property
    def name(self) -> str:
        if len(self.limits) == 1:
            return next(iter(self.limits))
        return "waiting" if self.pool is Pool.THREADS else "computing"

    @property
    def max_concurrent_jobs(self) -> int:
        return sum(self.limits.values())


def plan_serving(queues: Collection[Queue], limit: int | None = None) -> Serving:
    """Choose a worker's pool, and limit how many jobs of each queue run at the same time.

    ``limit`` is the maximum per queue, or ``None`` for the default limits.
    """
    unique_queues = frozenset(queues)
    is_waiting = unique_queues <= _WAITING.keys()
    pool = Pool.THREADS if is_waiting else Pool.PREFORK
    limits = _WAITING if is_waiting else _COMPUTING
    if not unique_queues <= limits.keys():
        waiting = _join_names(unique_queues & _WAITING.keys())
        computing = _join_names(unique_queues & _COMPUTING.keys())
        raise IncompatibleQueues(
            f"{waiting} and {computing} can't share a worker; start one worker for the queues "
            f"{_join_names(_WAITING)}, and one for the queues {_join_names(_COMPUTING)}"
        )
    return Serving(
        pool, {queue: limit or limits[queue] for queue in Queue if queue in unique_queues}
    )


def _join_names(queues: Collection[Queue]) -> str:
    return ", ".join(queue for queue in Queue if queue in queues)
