"""Updates the metrics of the whole deployment when a metrics collector requests them."""

import asyncio
import time
from collections.abc import Mapping

from api.limits.bulkheads import METRICS
from api.limits.dependency_probes import DependencyProbe
from api.metrics import (
    CANARY_SECONDS,
    DEPENDENCY_UP,
    DISK_FULL,
    LLM_USAGE,
    PHOTO_LIMIT,
    PHOTO_REMAINING,
    UsageSums,
    clear_database_gauges,
    set_database_gauges,
)
from api.readiness import Condition, Readiness
from integrations.stock_photos.port import PhotoProviderName, Quota
from services import deployment_figures
from services.composer import call_charges
from services.composer.photos import read_quotas
from services.deployment_figures import DeploymentFigures
from services.privacy.overdue_rows import count_overdue_rows
from storage.full_disks import FULL_DISKS, Store
from storage.redis.canaries import Canaries
from storage.resources import Resources

# The minimum time for which metrics from the database are cached.
_LIFETIME_SECONDS = 3.0
# Metrics are cached for at least this multiple of the time that reading them took. With this
# factor, a process spends at most 5 % of its time on reading metrics.
_LIFETIME_SECONDS_PER_READ_SECOND = 20.0

_Quotas = Mapping[PhotoProviderName, list[Quota]]
_Rows = tuple[DeploymentFigures, Mapping[str, int]]


class DeploymentMetrics:
    """The metrics of the whole deployment, which are read from the database and Redis."""

    def __init__(self, resources: Resources, readiness: Readiness) -> None:
        def read_rows() -> tuple[_Rows, float]:
            started_at = time.monotonic()
            figures = deployment_figures.read_figures(resources.database)
            overdue = count_overdue_rows(resources)
            return (figures, overdue), time.monotonic() - started_at

        def read_redis() -> tuple[_Quotas, UsageSums, dict[str, float]]:
            client = resources.redis
            canaries = Canaries(client).read_delays_or_silence()
            return read_quotas(client), call_charges.read_usage(client), canaries

        self._readiness = readiness
        self._rows = DependencyProbe(read_rows, METRICS)
        self._redis = DependencyProbe(read_redis, METRICS)
        self._expires_at = 0.0

    async def refresh(self) -> None:
        """Update all metrics of the deployment.

        The metrics from Redis or the database are removed while their source is unavailable.
        """
        dependencies, redis_values, _ = await asyncio.gather(
            self._readiness.check_dependencies(), self._redis.read(), self._refresh_rows()
        )
        for name, gauge in DEPENDENCY_UP.items():
            gauge.set(dependencies[name] is not Condition.UNAVAILABLE)
        full_disks = FULL_DISKS.list_stores()
        for store in Store:
            DISK_FULL.labels(store).set(store in full_disks)
        quotas, usage, canaries = redis_values or ({}, {}, {})
        PHOTO_LIMIT.clear()
        PHOTO_REMAINING.clear()
        for provider, provider_quotas in quotas.items():
            for quota in provider_quotas:
                PHOTO_LIMIT.labels(provider, quota.window).set(quota.limit)
                PHOTO_REMAINING.labels(provider, quota.window).set(quota.remaining)
        LLM_USAGE.sums = usage
        CANARY_SECONDS.clear()
        for queue, seconds in canaries.items():
            CANARY_SECONDS.labels(queue).set(seconds)

    async def _refresh_rows(self) -> None:
        if time.monotonic() < self._expires_at:
            return
        result = await self._rows.read()
        if result is None:
            clear_database_gauges()
            return
        (figures, overdue), seconds = result
        lifetime = max(_LIFETIME_SECONDS, _LIFETIME_SECONDS_PER_READ_SECOND * seconds)
        self._expires_at = time.monotonic() + lifetime
        set_database_gauges(figures, overdue)
