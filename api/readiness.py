"""Decides whether this API process is ready to serve requests (``/readyz``).

A load balancer sends no requests to a process that isn't ready. An API process is ready if the
database is available and has the tables of the running release. Redis, the broker and the object
storage aren't needed, because most routes work without them. If readiness depended on Redis, an
outage of Redis would take all API processes out of service.

Each change is logged, even if nobody calls ``/readyz``.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from enum import StrEnum

from api.limits.bulkheads import READINESS
from api.limits.dependency_probes import DependencyProbe
from core.errors import TransientError
from core.logging import get_logger
from core.queues import Queue
from services.store_checks import CHECK_STORES, check_writes, read_last_check
from storage.full_disks import FULL_DISKS, Store
from storage.migrations import revisions
from storage.objects import NO_BUCKET
from storage.resources import Resources

log = get_logger(__name__)

_LIFETIME_SECONDS = 1.0
_CHECK_EVERY_SECONDS = 5.0
# How long ago a worker may have checked that the stores have space.
_MAX_CHECK_AGE_SECONDS = CHECK_STORES.every.total_seconds() + 30.0
_CHECK_WRITES_EVERY_SECONDS = 15.0


class Condition(StrEnum):
    """The health of the API process, or of a dependency such as the database."""

    OK = "ok"
    UNAVAILABLE = "unavailable"
    # The database is available but lacks the tables of the running release.
    OUTDATED = "outdated"
    # Redis, the broker or the object storage is unavailable, so some routes don't work, or the disk
    # of a store is full.
    DEGRADED = "degraded"
    # The disk of a store is full, so that the store accepts no new data.
    FULL = "full"
    # The API process has received SIGTERM, and still serves requests for a few seconds.
    ENDING = "ending"


# The conditions under which a load balancer may send requests to the process.
READY = frozenset({Condition.OK, Condition.DEGRADED})


class Readiness:
    """Checks the dependencies at most once per second for all requests."""

    def __init__(self, resources: Resources) -> None:
        newest_revision = revisions.get_newest_revision()

        def check_database() -> Condition:
            fits = revisions.is_compatible(resources.database, newest_revision)
            return Condition.OK if fits else Condition.OUTDATED

        def check_redis() -> Condition:
            began_at = time.monotonic()
            # Redis also rejects PING while it can't write its file.
            resources.redis.ping()
            FULL_DISKS.report_write(Store.REDIS, began_at)
            if resources.settings.broker == resources.settings.cache:
                FULL_DISKS.report_write(Store.BROKER, began_at)
            return Condition.OK

        def check_broker() -> Condition:
            if resources.broker.count_waiting(Queue.MAINTENANCE) is None:
                raise TransientError("The broker is not responding.")
            return Condition.OK

        def check_objects() -> Condition:
            if not resources.objects.has_bucket():
                raise TransientError(NO_BUCKET)
            return Condition.OK

        checks: Mapping[str, Callable[[], Condition]] = {
            "database": check_database,
            "redis": check_redis,
            "broker": check_broker,
            "objects": check_objects,
        }
        self._probes = {name: DependencyProbe(check, READINESS) for name, check in checks.items()}
        self._write_probe = DependencyProbe(_WriteCheck(resources).run, READINESS)
        self._check: asyncio.Task[Mapping[str, Condition]] | None = None
        self._checked_at = 0.0
        self._conditions: Mapping[str, Condition] = {}

    async def run(self) -> None:
        while True:
            conditions = await self.check_dependencies()
            if conditions["database"] is Condition.OK:
                await self._write_probe.read()
            await asyncio.sleep(_CHECK_EVERY_SECONDS)

    async def check_dependencies(self) -> Mapping[str, Condition]:
        """Return the health of each dependency, and of each full disk."""
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
        conditions = {
            name: result or Condition.UNAVAILABLE
            for name, result in zip(self._probes, results, strict=True)
        }
        self._log_changes(conditions)
        self._conditions = conditions
        full_disks = {f"{store}_disk": Condition.FULL for store in FULL_DISKS.list_stores()}
        return {**conditions, **full_disks}

    def _log_changes(self, conditions: Mapping[str, Condition]) -> None:
        for name, condition in conditions.items():
            if condition is self._conditions.get(name, Condition.OK):
                continue
            match condition:
                case Condition.OK:
                    log.warning("dependency.available", dependency=name)
                case Condition.OUTDATED:
                    log.error("dependency.outdated", dependency=name)
                case _:
                    reason = self._probes[name].failure
                    log.error("dependency.unavailable", dependency=name, reason=reason)


def judge_process(dependencies: Mapping[str, Condition], *, is_ending: bool) -> Condition:
    if is_ending:
        return Condition.ENDING
    if dependencies["database"] is not Condition.OK:
        return Condition.UNAVAILABLE
    are_all_ok = all(condition is Condition.OK for condition in dependencies.values())
    return Condition.OK if are_all_ok else Condition.DEGRADED


class _WriteCheck:
    """Checks that the database and the object storage have space for new data.

    Usually, a worker checks this each minute. The API process checks it if no worker does so, or if
    a disk is full, because a worker gets no work from a broker whose disk is full.
    """

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._confirmed_at = self._checked_at = time.monotonic()

    def run(self) -> None:
        """Check the stores if necessary. Raises ``psycopg2.Error`` or ``TransientError``."""
        now = time.monotonic()
        last_check = read_last_check(self._resources.database)
        if last_check is not None and not last_check.has_failed:
            self._confirmed_at = max(self._confirmed_at, now - last_check.age_seconds)
            for store in (Store.DATABASE, Store.OBJECTS):
                FULL_DISKS.report_write(store, self._confirmed_at)
        is_doubtful = (
            (last_check is not None and last_check.has_failed)
            or now - self._confirmed_at > _MAX_CHECK_AGE_SECONDS
            or FULL_DISKS.list_stores()
        )
        if is_doubtful and now - self._checked_at > _CHECK_WRITES_EVERY_SECONDS:
            self._checked_at = now
            check_writes(self._resources)
            self._confirmed_at = now
