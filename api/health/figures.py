"""The figures of the whole deployment among the metrics, which are read when they are asked for."""

import asyncio
import math
from collections.abc import Mapping

from api.limits.bulkheads import METRICS
from api.limits.questions import Question
from api.metrics import language_model
from api.metrics.requests import (
    CANARY,
    JOBS,
    LEDGER_FAULTS,
    OVERDUE,
    PHOTO_LIMIT,
    PHOTO_REMAINING,
)
from integrations.stock_photos.port import PhotoProviderName, Quota
from services.composer import model_usage
from services.composer.photos import noted_quotas
from services.jobs import records, upkeep
from services.money.credits.verify import VERIFY_LEDGER
from services.retention.overdue import OverdueRows
from storage.redis.canaries import Canaries
from storage.resources import Resources

_Quotas = Mapping[PhotoProviderName, list[Quota]]


class Figures:
    def __init__(self, resources: Resources) -> None:
        def count_rows() -> tuple[Mapping[tuple[str, str], int], int | None]:
            with resources.unit_of_work() as uow:
                faults = upkeep.last_result(uow, VERIFY_LEDGER)
                return records.count_unfinished(uow), faults

        overdue = OverdueRows(resources.settings)

        def read_noted() -> tuple[_Quotas, language_model.Sums, dict[str, float]]:
            client = resources.redis
            return noted_quotas(client), model_usage.noted(client), Canaries(client).seconds()

        self._rows = Question(count_rows, METRICS)
        self._overdue = Question(lambda: overdue.count(resources.database), METRICS)
        self._noted = Question(read_noted, METRICS)

    async def refresh(self) -> None:
        """What a dependency that is away would say is left out, and not shown as it was before."""
        rows, overdue_rows, noted = await asyncio.gather(
            self._rows.answer(), self._overdue.answer(), self._noted.answer()
        )
        JOBS.clear()
        jobs, faults = rows or ({}, None)
        for (lane, status), count in jobs.items():
            JOBS.labels(lane, status).set(count)
        OVERDUE.clear()
        for table, count in (overdue_rows or {}).items():
            OVERDUE.labels(table).set(count)
        # Before the first check, and while the database is away, there is no number to show.
        LEDGER_FAULTS.set(math.nan if faults is None else faults)
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
