"""The figures of the whole deployment among the metrics, which are read when they are asked for."""

import asyncio
import time
from collections.abc import Mapping

from api.health.readiness import Condition, Readiness
from api.limits.bulkheads import METRICS
from api.limits.questions import Question
from api.metrics import deployment, language_model
from api.metrics.requests import CANARY, PHOTO_LIMIT, PHOTO_REMAINING
from integrations.stock_photos.port import PhotoProviderName, Quota
from services import deployment_figures
from services.composer import model_usage
from services.composer.photos import noted_quotas
from services.deployment_figures import DeploymentFigures
from services.retention.overdue import OverdueRows
from storage.redis.canaries import Canaries
from storage.resources import Resources

# Two collectors, and people who look, cost the database one read.
_KEPT_SECONDS = 3.0
# A read that took long is kept for longer: reads take a twentieth of the time at most.
_KEPT_PER_SECOND = 20.0

_Quotas = Mapping[PhotoProviderName, list[Quota]]
_Rows = tuple[DeploymentFigures, Mapping[str, int]]


class Figures:
    def __init__(self, resources: Resources, readiness: Readiness) -> None:
        overdue = OverdueRows(resources.settings)

        def read_rows() -> tuple[_Rows, float]:
            began = time.monotonic()
            database = resources.database
            rows = deployment_figures.read(database), overdue.count(database)
            return rows, time.monotonic() - began

        def read_noted() -> tuple[_Quotas, language_model.Sums, dict[str, float]]:
            client = resources.redis
            return noted_quotas(client), model_usage.noted(client), Canaries(client).seconds()

        self._readiness = readiness
        self._rows = Question(read_rows, METRICS)
        self._noted = Question(read_noted, METRICS)
        self._kept_until = 0.0

    async def refresh(self) -> None:
        """What a dependency that is away would say is left out, and not shown as it was before."""
        dependencies, noted, _ = await asyncio.gather(
            self._readiness.dependencies(), self._noted.answer(), self._refresh_rows()
        )
        deployment.show_dependencies(
            {
                name: condition is not Condition.UNAVAILABLE
                for name, condition in dependencies.items()
            }
        )
        quotas, usage, canaries = noted or ({}, {}, {})
        _show_quotas(quotas)
        language_model.show_usage(usage)
        CANARY.clear()
        for lane, seconds in canaries.items():
            CANARY.labels(lane).set(seconds)

    async def _refresh_rows(self) -> None:
        if time.monotonic() < self._kept_until:
            return
        # Those who ask meanwhile wait for the same answer.
        answer = await self._rows.answer()
        if answer is None:
            deployment.show_nothing()
            return
        (figures, overdue), seconds = answer
        self._kept_until = time.monotonic() + max(_KEPT_SECONDS, _KEPT_PER_SECOND * seconds)
        deployment.show(figures, overdue)


def _show_quotas(found: _Quotas) -> None:
    PHOTO_LIMIT.clear()
    PHOTO_REMAINING.clear()
    for provider, quotas in found.items():
        for quota in quotas:
            PHOTO_LIMIT.labels(provider, quota.window).set(quota.limit)
            PHOTO_REMAINING.labels(provider, quota.window).set(quota.remaining)
