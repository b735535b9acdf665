"""Decides whether this API process is ready to serve requests (``/readyz``).

A load balancer sends no requests to a process that isn't ready. An API process is ready if the
database is available and has the tables of the running release. An API process is ready even
without Redis, the broker and the object storage, because most routes work without them. If
readiness depended on Redis, an outage of Redis would take all API processes out of service.
"""

import asyncio
from collections.abc import Callable, Mapping
from enum import StrEnum

from api.limits.bulkheads import READINESS
from api.limits.dependency_probes import DependencyProbe
from core.errors import TransientError
from core.logging import get_logger
from core.queues import Queue
from storage.migrations import revisions
from storage.objects import NO_BUCKET, ObjectStore
from storage.resources import Resources

log = get_logger(__name__)

_LIFETIME_SECONDS = 1.0


class Condition(StrEnum):
    """The health of the API process, or of a dependency such as the database."""

    OK = "ok"
    UNAVAILABLE = "unavailable"
    # The database is available but lacks the tables of the running release.
    OUTDATED = "outdated"
    # Redis, the broker or the object storage is unavailable, so some routes don't work.
    DEGRADED = "degraded"
    # The API process has received SIGTERM, and still serves requests for a few seconds.
    ENDING = "ending"


# The conditions under which a load balancer may send requests to the process.
READY = frozenset({Condition.OK, Condition.DEGRADED})


class Readiness:
    """Checks the dependencies of the API process, at most once per second for all requests."""

    def __init__(self, resources: Resources) -> None:
        newest_revision = revisions.get_newest_revision()

        def check_database() -> Condition:
            fits = revisions.is_compatible(resources.database, newest_revision)
            return Condition.OK if fits else Condition.OUTDATED

        def check_redis() -> Condition:
            resources.redis.ping()
            return Condition.OK

        def check_broker() -> Condition:
            is_available = resources.broker.count_waiting(Queue.MAINTENANCE) is not None
            return Condition.OK if is_available else Condition.UNAVAILABLE

        checks: Mapping[str, Callable[[], Condition]] = {
            "database": check_database,
            "redis": check_redis,
            "broker": check_broker,
            "objects": _BucketCheck(resources.objects).check,
        }
        self._probes = {name: DependencyProbe(check, READINESS) for name, check in checks.items()}
        self._check: asyncio.Task[Mapping[str, Condition]] | None = None
        self._checked_at = 0.0

    async def check_dependencies(self) -> Mapping[str, Condition]:
        now = asyncio.get_running_loop().time()
        if self._check is None or (
            self._check.done() and now - self._checked_at >= _LIFETIME_SECONDS
        ):
            self._check = asyncio.ensure_future(self._check_all())
        # Several requests share a check, so cancelling one request must not cancel the check.
        return await asyncio.shield(self._check)

    async def _check_all(self) -> Mapping[str, Condition]:
        results = await asyncio.gather(*(probe.read() for probe in self._probes.values()))
        self._checked_at = asyncio.get_running_loop().time()
        conditions = [result or Condition.UNAVAILABLE for result in results]
        return dict(zip(self._probes, conditions, strict=True))


def judge_process(dependencies: Mapping[str, Condition], *, is_ending: bool) -> Condition:
    """Derive the health of the API process from the health of its dependencies."""
    if is_ending:
        return Condition.ENDING
    if dependencies["database"] is not Condition.OK:
        return Condition.UNAVAILABLE
    are_all_ok = all(condition is Condition.OK for condition in dependencies.values())
    return Condition.OK if are_all_ok else Condition.DEGRADED


class _BucketCheck:
    """Checks the bucket in the object storage, and logs why the bucket can't be used.

    The same reason is logged again only after the bucket has worked in the meantime.
    """

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._logged_reasons: set[str] = set()

    def check(self) -> Condition:
        try:
            reason = None if self._objects.has_bucket() else NO_BUCKET
        except TransientError as error:
            reason = str(error)
        if reason is None:
            self._logged_reasons.clear()
            return Condition.OK
        if reason not in self._logged_reasons:
            self._logged_reasons.add(reason)
            log.error("objects.unusable", reason=reason)
        return Condition.UNAVAILABLE
