"""The queues that a worker process serves, and how much work of each it does at once."""

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from core.queues import Queue


class Pool(StrEnum):
    """The kinds of pools, by Celery's names."""

    # For work that waits for other people's servers.
    THREADS = "threads"
    # Processes, for work that needs a core.
    PREFORK = "prefork"


# How much work of a queue a process does at once.
_WAITING = {
    Queue.REQUEST: 16,
    Queue.PHOTOS: 8,
    Queue.MONEY: 4,
    Queue.MAIL: 6,
    Queue.WEBHOOKS: 8,
    Queue.MAINTENANCE: 2,
}
_COMPUTING = {Queue.EXPORT: 1, Queue.MEDIA: os.cpu_count() or 1, Queue.BULK: 1}


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
        """Return a short name for Flower, which shows a worker's queues beside it."""
        if len(self.limits) == 1:
            return next(iter(self.limits))
        return "waiting" if self.pool is Pool.THREADS else "computing"

    @property
    def jobs_at_once(self) -> int:
        return sum(self.limits.values())


def serving(queues: Collection[Queue], limit: int | None = None) -> Serving:
    """Return what a process for these queues does, at most ``limit`` of each.

    Raises ``QueuesDontMix`` for queues that need processes of different kinds.
    """
    wanted = frozenset(queues)
    is_waiting = wanted <= _WAITING.keys()
    pool, allowed = (Pool.THREADS, _WAITING) if is_waiting else (Pool.PREFORK, _COMPUTING)
    if not wanted <= allowed.keys():
        raise QueuesDontMix(
            f"{_listed(wanted & _WAITING.keys())} and {_listed(wanted & _COMPUTING.keys())} need "
            "different kinds of workers: start one for the queues that wait for other servers "
            f"({_listed(_WAITING)}) and one for those that compute ({_listed(_COMPUTING)})"
        )
    return Serving(pool, {queue: limit or allowed[queue] for queue in Queue if queue in wanted})


def _listed(queues: Collection[Queue]) -> str:
    return ", ".join(queue for queue in Queue if queue in queues)
