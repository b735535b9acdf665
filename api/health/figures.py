"""The figures of the whole deployment among the metrics, which are read when they are asked for."""

import asyncio
from collections.abc import Mapping

from api.limits.bulkheads import METRICS
from api.limits.questions import Question
from api.metrics import language_model
from api.metrics.requests import CANARY, JOBS, OVERDUE, PHOTO_LIMIT, PHOTO_REMAINING
from integrations.stock_photos.port import PhotoProviderName, Quota
from services.composer import model_usage
from services.composer.photos import noted_quotas
from services.jobs import records
from services.retention import overdue
from storage.redis.canaries import Canaries
from storage.resources import Resources

_Quotas = Mapping[PhotoProviderName, list[Quota]]


class Figures:
    def __init__(self, resources: Resources) -> None:
        def count_jobs() -> Mapping[tuple[str, str], int]:
            with resources.unit_of_work() as uow:
                return records.count_unfinished(uow)

        def count_overdue() -> Mapping[str, int]:
            with resources.unit_of_work() as uow:
                return overdue.count_overdue(uow, resources.settings)

        def read_noted() -> tuple[_Quotas, language_model.Sums, dict[str, float]]:
            client = resources.redis
            return noted_quotas(client), model_usage.noted(client), Canaries(client).seconds()

        self._jobs = Question(count_jobs, METRICS)
        self._overdue = Question(count_overdue, METRICS)
        self._noted = Question(read_noted, METRICS)

    async def refresh(self) -> None:
        """What a dependency that is away would say is left out, and not shown as it was before."""
        jobs, overdue_rows, noted = await asyncio.gather(
            self._jobs.answer(), self._overdue.answer(), self._noted.answer()
        )
        JOBS.clear()
        for (lane, status), count in (jobs or {}).items():
            JOBS.labels(lane, status).set(count)
        OVERDUE.clear()
        for table, count in (overdue_rows or {}).items():
            OVERDUE.labels(table).set(count)
        quotas, usage, canaries = noted or ({}, {}, {})
        _show_quotas(quotas)
        language_model.show_usage(usage)
        CANARY.clear()
        for lane, seconds in canaries.items():
            CANARY.labels(lane).set(seconds)


def _show_quotas(found: _Quotas) -> None:
    PHOTO_LIMIT.clear()
    PHOTO_REMAINING.clear()
    for provider, quotas in found.items():
        for quota in quotas:
            PHOTO_LIMIT.labels(provider, quota.window).set(quota.limit)
            PHOTO_REMAINING.labels(provider, quota.window).set(quota.remaining)
