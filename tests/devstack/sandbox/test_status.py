import asyncio

import pytest

from devstack.sandbox.status import (
    FIGURES,
    REFRESH_SECONDS,
    Figure,
    MetricsSource,
    Reading,
    StatusFigures,
)
from tests.support.http.servers import QuietHandler, http_server, running_server
from tests.support.observability.alert_rules import series
from tests.support.sandbox.in_process import fetch_page

TOKEN = "a-token-of-the-test"


def test_sandbox_status_reads_dependencies_from_the_metrics() -> None:
    class MetricsHandler(QuietHandler):
        """Serves metrics only to clients that send the token."""

        def do_GET(self) -> None:
            has_token = self.headers.get("Authorization") == f"Bearer {TOKEN}"
            metrics = b"pressroom_database_up 1\npressroom_redis_up 0\n"
            self.reply(200 if has_token else 401, metrics)

    with running_server(http_server(MetricsHandler)) as url:
        figures = StatusFigures([MetricsSource(f"{url}/metrics", TOKEN)])
        asyncio.run(figures.take_sample())
    assert figures.check_dependencies() == {"database": True, "redis": False}


def test_sandbox_status_shows_no_duration_before_anything_was_measured() -> None:
    counts = iter((b"3", b"3", b"5"))

    class MetricsHandler(QuietHandler):
        """Serves metrics about requests that took two seconds each.

        The second reading of the metrics counts no more requests than the first reading.
        """

        def do_GET(self) -> None:
            count = int(next(counts))
            name = "pressroom_request_seconds"
            text = f"# TYPE {name} summary\n{name}_sum {2 * count}\n{name}_count {count}\n"
            self.reply(200, text.encode())

    [duration] = [each for each in FIGURES if each.metric == "pressroom_request_seconds"]

    async def read_durations() -> list[list[float]]:
        figures = StatusFigures([MetricsSource(url)])
        await figures.take_sample()
        before = figures.values(duration)
        await asyncio.sleep(REFRESH_SECONDS)
        await figures.take_sample()
        return [before, figures.values(duration)]

    with running_server(http_server(MetricsHandler)) as url:
        assert asyncio.run(read_durations()) == [[], [2.0]]


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_every_sandbox_status_figure_uses_an_existing_metric(figure: Figure) -> None:
    endings = ("_sum", "_count") if figure.reading is Reading.MEAN else ("",)
    for ending in endings:
        labels = series()[figure.metric + ending]
        assert set(figure.labels) <= labels


def test_sandbox_without_a_stack_shows_no_status_figures() -> None:
    assert "runs without a stack" in fetch_page("/status").text
    assert '<a href="/status">' in fetch_page("/").text
