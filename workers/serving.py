"""Decides which queues a worker process serves, with which limits."""

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from core.queues import Queue

# How many jobs of each queue a process runs at the same time.
_WAITING = {
    Queue.REQUEST: 16,
    Queue.PHOTOS: 8,
    Queue.MONEY: 4,
    Queue.MAIL: 6,
    Queue.WEBHOOKS: 8,
    Queue.MAINTENANCE: 2,
}
_COMPUTING = {Queue.EXPORT: 1, Queue.MEDIA: os.cpu_count() or 1, Queue.BULK: 1}


class Pool(StrEnum):
    """The kinds of pools, by Celery's names."""

    # For work that waits for remote servers.
    THREADS = "threads"
    # Processes, for work that needs a core.
    PREFORK = "prefork"


class QueuesDontMix(ValueError):
    """The queues need different kinds of workers."""


@dataclass(frozen=True)
class Serving:
    """The queues of one process.

    Each queue has its own limit of concurrent jobs, and the pool is large enough for all limits
    together. A remote server that hangs therefore delays only the queue that calls it. Long
    computations in a thread would delay all queues of the process, so they run in a process pool or
    a child process.
    """

    pool: Pool
    limits: Mapping[Queue, int]

    @property
    def name(self) -> str:
        """Return a short name for Flower, which also shows the worker's queues."""
        if len(self.limits) == 1:
            return next(iter(self.limits))
        return "waiting" if self.pool is Pool.THREADS else "computing"

    @property
    def jobs_at_once(self) -> int:
        return sum(self.limits.values())


def plan_serving(queues: Collection[Queue], limit: int | None = None) -> Serving:
    """Return how a process serves these queues.

    Raises ``QueuesDontMix`` if the queues need processes of different kinds.

    Args:
        limit: the number of concurrent jobs per queue. Without it, each queue has its default.
    """
    unique_queues = frozenset(queues)
    is_waiting = unique_queues <= _WAITING.keys()
    pool, limits = (Pool.THREADS, _WAITING) if is_waiting else (Pool.PREFORK, _COMPUTING)
    if not unique_queues <= limits.keys():
        waiting = _join_names(unique_queues & _WAITING.keys())
        computing = _join_names(unique_queues & _COMPUTING.keys())
        raise QueuesDontMix(
            f"{waiting} and {computing} need "
            "different kinds of workers: start one for the queues that wait for other servers "
            f"({_join_names(_WAITING)}) and one for those that compute ({_join_names(_COMPUTING)})"
        )
    return Serving(
        pool, {queue: limit or limits[queue] for queue in Queue if queue in unique_queues}
    )


def _join_names(queues: Collection[Queue]) -> str:
    return ", ".join(queue for queue in Queue if queue in queues)
