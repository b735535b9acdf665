"""Shows the metrics of a running stack's programs over the last few minutes.

Each request for the status page collects the metrics of all programs.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from devstack.documentation import find_documentation
from devstack.sandbox import render

if TYPE_CHECKING:
    import httpx2

REFRESH_SECONDS = 2.0
# Stored samples are discarded as outdated after ``_MAX_GAP_SECONDS`` without a new sample.
_MAX_GAP_SECONDS = 60.0
_SECOND_SAMPLE_DELAY_SECONDS = 0.5
# The maximum number of stored metric samples, enough for five minutes.
_MAX_SAMPLES = 150
_TIMEOUT_SECONDS = 3.0
DEPENDENCIES = ("database", "redis", "broker", "objects")
STATUS_PATH = "/status"
PLOT_WIDTH = 240
PLOT_HEIGHT = 48
_MIN_ROUNDED = 10
_MAX_EXACT = 1000
_QUEUED = {"status": "queued"}
_FAILED = {"status": "failed"}
_SENT = {"outcome": "sent"}
_DEFERRED = {"outcome": "deferred"}


class Reading(StrEnum):
    """How the time series of a metric are combined into one number."""

    SUM = "sum"
    MAX = "max"
    # The increase of a counter per second.
    RATE = "rate"
    # The increase of a histogram's sum divided by the increase of its count.
    MEAN = "mean"


@dataclass(frozen=True)
class Figure:
    name: str
    unit: str
    metric: str
    reading: Reading
    labels: Mapping[str, str] = field(default_factory=dict)


FIGURES = (
    Figure("Requests", "per second", "pressroom_requests_total", Reading.RATE),
    Figure("Request duration", "s", "pressroom_request_seconds", Reading.MEAN),
    Figure("Errors", "per second", "pressroom_errors_total", Reading.RATE),
    Figure("Requests waiting for a worker", "", "pressroom_waiting_requests", Reading.SUM),
    Figure("Queued jobs", "", "pressroom_jobs", Reading.SUM, _QUEUED),
    Figure("Age of the oldest queued job", "s", "pressroom_job_oldest_seconds", Reading.MAX),
    Figure("Finished jobs", "per second", "pressroom_jobs_ended_total", Reading.RATE),
    Figure("Failed jobs", "per second", "pressroom_jobs_ended_total", Reading.RATE, _FAILED),
    Figure("Job duration per turn", "s", "pressroom_job_running_seconds", Reading.MEAN),
    Figure("Conversion duration", "s", "pressroom_conversion_seconds", Reading.MEAN),
    Figure("Rows imported", "per second", "pressroom_import_rows_total", Reading.RATE),
    Figure("Mails sent", "per second", "pressroom_mails_total", Reading.RATE, _SENT),
    Figure("Deferred mails", "per second", "pressroom_mails_total", Reading.RATE, _DEFERRED),
    Figure("Webhook delay", "s", "pressroom_webhook_lag_seconds", Reading.MAX),
    Figure("Credits moved", "per second", "pressroom_credits_total", Reading.RATE),
    Figure("Database connections", "", "pressroom_database_connections_in_use", Reading.SUM),
    Figure("Statements over 100 ms", "per second", "pressroom_slow_statements_total", Reading.RATE),
    Figure("Object storage call duration", "s", "pressroom_s3_seconds", Reading.MEAN),
    Figure("Redis round-trip time", "s", "pressroom_redis_seconds", Reading.MEAN),
)


@dataclass(frozen=True)
class MetricsSource:
    url: str
    token: str | None = None


@dataclass(frozen=True)
class _Sample:
    at: float
    # The name, labels and value of each time series.
    series: Sequence[tuple[str, Mapping[str, str], float]]

    def values(self, metric: str, labels: Mapping[str, str]) -> list[float]:
        return [
            value
            for name, series_labels, value in self.series
            if name == metric and labels.items() <= series_labels.items()
        ]


class StatusFigures:
    def __init__(self, sources: Iterable[MetricsSource]) -> None:
        self.sources = tuple(sources)
        self._samples: deque[_Sample] = deque(maxlen=_MAX_SAMPLES)

    async def take_sample(self) -> None:
        """Take two samples at the first call or after a long gap, because a rate needs two."""
        age = time.monotonic() - self._samples[-1].at if self._samples else math.inf
        if age > _MAX_GAP_SECONDS:
            self._samples.clear()
            await self._read_metrics()
            await asyncio.sleep(_SECOND_SAMPLE_DELAY_SECONDS)
        # Status pages that are open at the same time share their metric samples.
        if age > REFRESH_SECONDS / 2:
            await self._read_metrics()

    def check_dependencies(self) -> dict[str, bool]:
        series = self._samples[-1].series if self._samples else ()
        values = {name: bool(value) for name, _, value in series}
        names = {each: f"pressroom_{each}_up" for each in DEPENDENCIES}
        return {each: values[name] for each, name in names.items() if name in values}

    def values(self, figure: Figure) -> list[float]:
        """Return the values of a metric over time, oldest first, except means of periods without
        events.
        """
        if figure.reading in (Reading.SUM, Reading.MAX):
            combine = sum if figure.reading is Reading.SUM else max
            samples = [each.values(figure.metric, figure.labels) for each in self._samples]
            return [float(combine(each)) for each in samples if each]
        if figure.reading is Reading.RATE:
            return [rise / seconds for rise, seconds in self._compute_increases(figure, "")]
        sums = self._compute_increases(figure, "_sum")
        counts = self._compute_increases(figure, "_count")
        return [
            total / events for (total, _), (events, _) in zip(sums, counts, strict=True) if events
        ]

    def _compute_increases(self, figure: Figure, ending: str) -> list[tuple[float, float]]:
        """Return a metric's increases between samples, and the seconds between the samples. A
        decrease counts as zero, because a process has restarted.
        """
        sums = [
            (each.at, sum(each.values(figure.metric + ending, figure.labels)))
            for each in self._samples
        ]
        return [
            (max(after - before, 0.0), end - begin)
            for (begin, before), (end, after) in pairwise(sums)
        ]

    async def _read_metrics(self) -> None:
        # Import httpx2 and the metrics parser only here, because they need megabytes of memory and
        # few sandboxes read metrics.
        import httpx2
        from prometheus_client.parser import text_string_to_metric_families

        async with httpx2.AsyncClient(timeout=_TIMEOUT_SECONDS, trust_env=False) as client:
            texts = await asyncio.gather(*(_fetch_metrics(client, each) for each in self.sources))
        series = [
            (sample.name, sample.labels, sample.value)
            for text in texts
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            # Skip metrics whose value is NaN, because they have no data.
            if sample.value == sample.value
        ]
        self._samples.append(_Sample(time.monotonic(), series))


async def _fetch_metrics(client: "httpx2.AsyncClient", source: MetricsSource) -> str:
    import httpx2

    headers = {"Authorization": f"Bearer {source.token}"} if source.token else {}
    try:
        reply = await client.get(source.url, headers=headers)
    except httpx2.HTTPError:
        # Skip a process that is starting, ending or hanging, and show the other processes.
        return ""
    return reply.text if reply.is_success else ""


def build_router(figures: StatusFigures) -> APIRouter:
    router = APIRouter()

    @router.get(STATUS_PATH, response_class=HTMLResponse)
    async def status() -> str:
        await figures.take_sample()
        plots = [_build_plot(each, figures.values(each)) for each in FIGURES]
        return render(
            "status.html",
            up=figures.check_dependencies(),
            plots=plots,
            every=int(REFRESH_SECONDS * 1000),
            width=PLOT_WIDTH,
            height=PLOT_HEIGHT,
            is_watched=bool(figures.sources),
            documentation=find_documentation(),
        )

    return router


def _build_plot(figure: Figure, values: list[float]) -> dict[str, str]:
    top = max(values, default=0.0) or 1.0
    step = PLOT_WIDTH / max(len(values) - 1, 1)
    points = [
        f"{number * step:.1f},{PLOT_HEIGHT - 2 - value / top * (PLOT_HEIGHT - 4):.1f}"
        for number, value in enumerate(values)
    ]
    return {
        "name": figure.name,
        "unit": figure.unit,
        "now": _format_value(values[-1]) if values else "–",
        "top": _format_value(max(values)) if values else "–",
        "points": " ".join(points),
    }


def _format_value(value: float) -> str:
    if value == int(value) and value < _MAX_EXACT:
        return f"{value:.0f}"
    return f"{value:.3g}" if value < _MIN_ROUNDED else f"{value:,.0f}"
