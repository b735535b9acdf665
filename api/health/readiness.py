"""Whether this process can serve calls: what ``/readyz`` says.

A load balancer takes a host out that is not ready. So only that counts which every route needs: a
database that answers, and has the tables of this release. All hosts share the rest (Redis, the
broker, object storage), and most routes work without it: to take all hosts out for it would stop
these too.
"""

import asyncio
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial

from api.limits.bulkheads import READINESS
from api.limits.questions import Question
from core.errors import TransientError
from core.lanes import Lane
from core.logging import get_logger
from storage.migrations import revisions
from storage.objects import NO_BUCKET, ObjectStore
from storage.resources import Resources

log = get_logger(__name__)

_KEPT_SECONDS = 1.0


class Condition(StrEnum):
    OK = "ok"
    UNAVAILABLE = "unavailable"
    # A database whose tables are an earlier release's, or a development version's.
    OUTDATED = "outdated"
    # Of the whole: something is away that not every route needs.
    DEGRADED = "degraded"
    # Of the whole: the process was asked to end, and takes calls for a few more seconds.
    ENDING = "ending"


READY = frozenset({Condition.OK, Condition.DEGRADED})


class Readiness:
    """Checks when it is asked, once a second at most: callers within a second get one answer."""

    def __init__(self, resources: Resources) -> None:
        needed = revisions.newest_revision()
        asks: Mapping[str, Callable[[], Condition]] = {
            "database": partial(_database, resources, needed),
            "redis": partial(_redis, resources),
            "broker": partial(_broker, resources),
            "objects": _Bucket(resources.objects).condition,
        }
        self._questions = {name: Question(ask, READINESS) for name, ask in asks.items()}
        self._check: asyncio.Task[Mapping[str, Condition]] | None = None
        self._checked_at = 0.0

    async def dependencies(self) -> Mapping[str, Condition]:
        """The condition of each dependency, by its name."""
        now = asyncio.get_running_loop().time()
        if self._check is None or (self._check.done() and now - self._checked_at >= _KEPT_SECONDS):
            self._check = asyncio.ensure_future(self._ask_all())
        # Shielded, since other callers wait for the same check.
        return await asyncio.shield(self._check)

    async def _ask_all(self) -> Mapping[str, Condition]:
        answers = await asyncio.gather(*(each.answer() for each in self._questions.values()))
        self._checked_at = asyncio.get_running_loop().time()
        found = [each or Condition.UNAVAILABLE for each in answers]
        return dict(zip(self._questions, found, strict=True))


def whole(dependencies: Mapping[str, Condition], *, is_ending: bool) -> Condition:
    """The condition of the process, which is to get calls if it is one of ``READY``."""
    if is_ending:
        return Condition.ENDING
    if dependencies["database"] is not Condition.OK:
        return Condition.UNAVAILABLE
    is_whole = all(each is Condition.OK for each in dependencies.values())
    return Condition.OK if is_whole else Condition.DEGRADED


def _database(resources: Resources, needed: str) -> Condition:
    fits = revisions.fits(resources.database, needed)
    return Condition.OK if fits else Condition.OUTDATED


def _redis(resources: Resources) -> Condition:
    resources.redis.ping()
    return Condition.OK


def _broker(resources: Resources) -> Condition:
    is_there = resources.broker.waiting(Lane.UPKEEP) is not None
    return Condition.OK if is_there else Condition.UNAVAILABLE


class _Bucket:
    """Logs why the bucket can't be used: a setting may be wrong.

    Each reason once, until the bucket can be used again: a server that is away has several in turn.
    """

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._said: set[str] = set()

    def condition(self) -> Condition:
        reason = self._why_not()
        if reason is None:
            self._said.clear()
            return Condition.OK
        if reason not in self._said:
            self._said.add(reason)
            log.error("objects.unusable", reason=reason)
        # Without its bucket the store is of no use.
        return Condition.UNAVAILABLE

    def _why_not(self) -> str | None:
        try:
            return None if self._objects.ready() else NO_BUCKET
        except TransientError as error:
            return str(error)
