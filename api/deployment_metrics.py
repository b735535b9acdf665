"""Metrics of the whole deployment, which are updated when a metrics collector requests them."""

import asyncio
import time
from collections.abc import Mapping

from api import metrics
from api.limits.bulkheads import METRICS
from api.limits.questions import Question
from api.metrics import CANARY, PHOTO_LIMIT, PHOTO_REMAINING
from api.readiness import Condition, Readiness
from integrations.stock_photos.port import PhotoProviderName, Quota
from services import deployment_figures
from services.composer import call_charges
from services.composer.photos import noted_quotas
from services.deployment_figures import DeploymentFigures
from services.privacy.overdue_rows import count_overdue_rows
from storage.redis.canaries import Canaries
from storage.resources import Resources

# How long figures from the database are cached, so that several metrics collectors cause only one
# read.
_LIFETIME_SECONDS = 3.0
# The figures of a slow read are reused for longer, so that reading takes at most a twentieth of the
# time.
_LIFETIME_PER_READ_SECOND = 20.0

_Quotas = Mapping[PhotoProviderName, list[Quota]]
_Rows = tuple[DeploymentFigures, Mapping[str, int]]


class DeploymentMetrics:
    """Updates the metrics of the whole deployment when a metrics collector requests them."""

    def __init__(self, resources: Resources, readiness: Readiness) -> None:
        def read_rows() -> tuple[_Rows, float]:
            began = time.monotonic()
            rows = (
                deployment_figures.read_figures(resources.database),
                count_overdue_rows(resources),
            )
            return rows, time.monotonic() - began

        def read_noted() -> tuple[_Quotas, metrics.Sums, dict[str, float]]:
            client = resources.redis
            canaries = Canaries(client).read_delays_or_silence()
            return noted_quotas(client), call_charges.noted_usage(client), canaries

        self._readiness = readiness
        self._rows = Question(read_rows, METRICS)
        self._noted = Question(read_noted, METRICS)
        self._expires_at = 0.0

    async def refresh(self) -> None:
        """Update all metrics. If Redis or the database is unavailable, remove its metrics."""
        dependencies, noted, _ = await asyncio.gather(
            self._readiness.dependencies(), self._noted.answer(), self._refresh_rows()
        )
        for name, condition in dependencies.items():
            metrics.UP[name].set(condition is not Condition.UNAVAILABLE)
        quotas, usage, canaries = noted or ({}, {}, {})
        PHOTO_LIMIT.clear()
        PHOTO_REMAINING.clear()
        for provider, provider_quotas in quotas.items():
            for quota in provider_quotas:
                PHOTO_LIMIT.labels(provider, quota.window).set(quota.limit)
                PHOTO_REMAINING.labels(provider, quota.window).set(quota.remaining)
        metrics.USAGE.sums = usage
        CANARY.clear()
        for queue, seconds in canaries.items():
            CANARY.labels(queue).set(seconds)

    async def _refresh_rows(self) -> None:
        if time.monotonic() < self._expires_at:
            return
        # Requests for metrics at the same time share one read of the database.
        answer = await self._rows.answer()
        if answer is None:
            metrics.show_nothing()
            return
        (figures, overdue), seconds = answer
        lifetime = max(_LIFETIME_SECONDS, _LIFETIME_PER_READ_SECOND * seconds)
        self._expires_at = time.monotonic() + lifetime
        metrics.show(figures, overdue)
