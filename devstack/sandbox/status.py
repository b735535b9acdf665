"""Shows figures of a running stack over the last minutes, from the metrics of its programs.

The metrics are read at each request of the status page. An open page sends a request every two
seconds.
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

from devstack.sandbox import render

if TYPE_CHECKING:
    import httpx2

CHECK_EVERY_SECONDS = 2.0
# Samples before a longer gap are discarded, because they don't describe the current state.
_MAX_GAP_SECONDS = 60.0
_SECOND_LOOK_AFTER_SECONDS = 0.5
# The maximum number of samples, which cover five minutes.
_KEPT_LOOKS = 150
_MAX_ANSWER_SECONDS = 3.0
DEPENDENCIES = ("database", "redis", "broker", "objects")


class Reading(StrEnum):
    """The way in which the series of a metric are combined into a figure."""

    SUM = "sum"
    MAX = "max"
    # The increase of a counter per second.
    RATE = "rate"
    # The increase of a histogram's sum per event.
    MEAN = "mean"


@dataclass(frozen=True)
class Figure:
    name: str
    unit: str
    metric: str
    reading: Reading
    labels: Mapping[str, str] = field(default_factory=dict)


_QUEUED, _FAILED = {"status": "queued"}, {"status": "failed"}
_SENT, _DEFERRED = {"outcome": "sent"}, {"outcome": "deferred"}
FIGURES = (
    Figure("Requests", "a second", "pressroom_requests_total", Reading.RATE),
    Figure("Time of a request", "s", "pressroom_request_seconds", Reading.MEAN),
    Figure("Errors", "a second", "pressroom_errors_total", Reading.RATE),
    Figure("Requests that wait for a worker", "", "pressroom_waiting_requests", Reading.SUM),
    Figure("Jobs that wait", "", "pressroom_jobs", Reading.SUM, _QUEUED),
    Figure("Oldest job that waits", "s", "pressroom_job_oldest_seconds", Reading.MAX),
    Figure("Jobs that end", "a second", "pressroom_jobs_ended_total", Reading.RATE),
    Figure("Jobs that fail", "a second", "pressroom_jobs_ended_total", Reading.RATE, _FAILED),
    Figure("Time of a turn", "s", "pressroom_job_running_seconds", Reading.MEAN),
    Figure("Time of a conversion", "s", "pressroom_conversion_seconds", Reading.MEAN),
    Figure("Rows imported", "a second", "pressroom_import_rows_total", Reading.RATE),
    Figure("Mails sent", "a second", "pressroom_mails_total", Reading.RATE, _SENT),
    Figure("Mails put off", "a second", "pressroom_mails_total", Reading.RATE, _DEFERRED),
    Figure("Webhooks: time without a worker", "s", "pressroom_webhook_lag_seconds", Reading.MAX),
    Figure("Credits moved", "a second", "pressroom_credits_total", Reading.RATE),
    Figure("Connections to the database", "", "pressroom_database_connections_in_use", Reading.SUM),
    Figure("Statements over 100 ms", "a second", "pressroom_slow_statements_total", Reading.RATE),
    Figure("Time of a call to object storage", "s", "pressroom_s3_seconds", Reading.MEAN),
    Figure("Time of a round trip to Redis", "s", "pressroom_redis_seconds", Reading.MEAN),
)


@dataclass(frozen=True)
class MetricsSource:
    """The URL of a process's metrics, and the token for the URL."""

    url: str
    token: str | None = None


@dataclass(frozen=True)
class _Look:
    at: float
    # The name, the labels and the value of each series.
    series: Sequence[tuple[str, Mapping[str, str], float]]

    def values(self, metric: str, labels: Mapping[str, str]) -> list[float]:
        return [
            value
            for name, own, value in self.series
            if name == metric and labels.items() <= own.items()
        ]


class StatusFigures:
    def __init__(self, sources: Iterable[MetricsSource]) -> None:
        self.sources = tuple(sources)
        self._looks: deque[_Look] = deque(maxlen=_KEPT_LOOKS)

    async def look(self) -> None:
        """Sample the metrics.

        The first call takes two samples, because a rate needs two samples.
        """
        age = time.monotonic() - self._looks[-1].at if self._looks else math.inf
        if age > _MAX_GAP_SECONDS:
            self._looks.clear()
            await self._read()
            await asyncio.sleep(_SECOND_LOOK_AFTER_SECONDS)
        # Pages that are open at the same time share their samples.
        if age > CHECK_EVERY_SECONDS / 2:
            await self._read()

    def up(self) -> dict[str, bool]:
        """Return whether each dependency is available to the API, by the name of the dependency."""
        series = self._looks[-1].series if self._looks else ()
        found = {name: bool(value) for name, _, value in series}
        names = {each: f"pressroom_{each}_up" for each in DEPENDENCIES}
        return {each: found[name] for each, name in names.items() if name in found}

    def values(self, figure: Figure) -> list[float]:
        """Return the figure in each sample that has a value, newest last."""
        if figure.reading in (Reading.SUM, Reading.MAX):
            together = sum if figure.reading is Reading.SUM else max
            found = [each.values(figure.metric, figure.labels) for each in self._looks]
            return [float(together(each)) for each in found if each]
        if figure.reading is Reading.RATE:
            return [rise / seconds for rise, seconds in self._rises(figure, "")]
        sums, counts = self._rises(figure, "_sum"), self._rises(figure, "_count")
        return [
            took / events if events else 0.0
            for (took, _), (events, _) in zip(sums, counts, strict=True)
        ]

    def _rises(self, figure: Figure, ending: str) -> list[tuple[float, float]]:
        """Return the increases of a metric between samples, with the seconds between the samples.

        A decrease counts as zero, because a process has restarted its counters.
        """
        sums = [
            (each.at, sum(each.values(figure.metric + ending, figure.labels)))
            for each in self._looks
        ]
        return [(max(to - of, 0.0), at - began) for (began, of), (at, to) in pairwise(sums)]

    async def _read(self) -> None:
        # Import these modules with the first sample, because they take megabytes and most sandboxes
        # take no samples.
        import httpx2
        from prometheus_client.parser import text_string_to_metric_families

        async with httpx2.AsyncClient(timeout=_MAX_ANSWER_SECONDS, trust_env=False) as client:
            texts = await asyncio.gather(*(_text(client, each) for each in self.sources))
        series = [
            (sample.name, sample.labels, sample.value)
            for text in texts
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.value == sample.value  # no NaN: it stands for nothing
        ]
        self._looks.append(_Look(time.monotonic(), series))


async def _text(client: "httpx2.AsyncClient", source: MetricsSource) -> str:
    import httpx2

    headers = {"Authorization": f"Bearer {source.token}"} if source.token else {}
    try:
        reply = await client.get(source.url, headers=headers)
    except httpx2.HTTPError:
        # The process is starting, ending or hanging. Use the metrics of the other processes.
        return ""
    return reply.text if reply.is_success else ""


PATH = "/status"
WIDTH, HEIGHT = 240, 48
_SMALL, _LARGE = 10, 1000


def make_router(figures: StatusFigures) -> APIRouter:
    router = APIRouter()

    @router.get(PATH, response_class=HTMLResponse)
    async def status() -> str:
        await figures.look()
        plots = [_plot(each, figures.values(each)) for each in FIGURES]
        return render(
            "status.html",
            up=figures.up(),
            plots=plots,
            every=int(CHECK_EVERY_SECONDS * 1000),
            width=WIDTH,
            height=HEIGHT,
            is_watched=bool(figures.sources),
        )

    return router


def _plot(figure: Figure, values: list[float]) -> dict[str, str]:
    top = max(values, default=0.0) or 1.0
    step = WIDTH / max(len(values) - 1, 1)
    points = [
        f"{number * step:.1f},{HEIGHT - 2 - value / top * (HEIGHT - 4):.1f}"
        for number, value in enumerate(values)
    ]
    return {
        "name": figure.name,
        "unit": figure.unit,
        "now": _shown(values[-1]) if values else "–",
        "top": _shown(max(values)) if values else "–",
        "points": " ".join(points),
    }


def _shown(value: float) -> str:
    """Format a value with about three significant digits."""
    if value == int(value) and value < _LARGE:
        return f"{value:.0f}"
    return f"{value:.3g}" if value < _SMALL else f"{value:,.0f}"
