"""The lanes that a worker process serves, and how much work of each it does at once."""

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from core.lanes import Lane


class Pool(StrEnum):
    """The kinds of pools, by Celery's names."""

    # For work that waits for other people's servers.
    THREADS = "threads"
    # Processes, for work that needs a core.
    PREFORK = "prefork"


# How much work of a lane a process does at once.
_WAITING = {
    Lane.REQUEST: 16,
    Lane.PHOTOS: 8,
    Lane.MONEY: 4,
    Lane.MAIL: 6,
    Lane.WEBHOOKS: 8,
    Lane.MAINTENANCE: 2,
}
_COMPUTING = {Lane.EXPORT: 1, Lane.MEDIA: os.cpu_count() or 1, Lane.BULK: 1}


class LanesDontMix(ValueError):
    """The lanes need different kinds of workers."""


@dataclass(frozen=True)
class Serving:
    """The lanes of one process.

    Each lane has a limit of its own and the pool has room for all of them, so work that is stuck in
    one lane holds up no other.
    """

    pool: Pool
    limits: Mapping[Lane, int]

    @property
    def jobs_at_once(self) -> int:
        return sum(self.limits.values())


def serving(lanes: Collection[Lane], limit: int | None = None) -> Serving:
    """Return what a process for these lanes does, at most ``limit`` of each.

    Raises ``LanesDontMix`` for lanes that need processes of different kinds.
    """
    wanted = frozenset(lanes)
    is_waiting = wanted <= _WAITING.keys()
    pool, allowed = (Pool.THREADS, _WAITING) if is_waiting else (Pool.PREFORK, _COMPUTING)
    if not wanted <= allowed.keys():
        raise LanesDontMix(
            f"{_listed(wanted & _WAITING.keys())} and {_listed(wanted & _COMPUTING.keys())} need "
            "different kinds of workers: start one for the lanes that wait for other servers "
            f"({_listed(_WAITING)}) and one for those that compute ({_listed(_COMPUTING)})"
        )
    return Serving(pool, {lane: limit or allowed[lane] for lane in Lane if lane in wanted})


def _listed(lanes: Collection[Lane]) -> str:
    return ", ".join(lane for lane in Lane if lane in lanes)
