"""The page that shows a stack's figures with plots of the last minutes."""

import asyncio
import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from devstack.sandbox.status import FIGURES, Figure, MetricsSource, Reading, StatusFigures
from tests.devstack.sandbox.test_sandbox import fetch
from tests.observability.alert_rules import series

TOKEN = "a-token-of-the-test"
REQUESTS = 'pressroom_requests_total{{method="GET",route="/lists",status="200"}} {}'


@dataclass
class Teller:
    """A process that tells metrics to whoever has the token."""

    url: str = ""
    lines: list[str] = field(default_factory=list)


@contextmanager
def telling() -> Iterator[Teller]:
    teller = Teller()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_known = self.headers.get("Authorization") == f"Bearer {TOKEN}"
            body = "\n".join([*teller.lines, ""]).encode()
            self.send_response(200 if is_known else 401)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        teller.url = f"http://127.0.0.1:{server.server_address[1]}/metrics"
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield teller
        server.shutdown()


def values(tellers: list[Teller], looks: list[list[list[str]]], figure: Figure) -> list[float]:
    """The figure after each of these tellers has told these lines, one look after the other."""
    figures = StatusFigures(MetricsSource(each.url, TOKEN) for each in tellers)

    async def look() -> None:
        for told in looks:
            for teller, lines in zip(tellers, told, strict=True):
                teller.lines = lines
            await figures._read()

    asyncio.run(look())
    return figures.values(figure)


def of(name: str) -> Figure:
    return next(each for each in FIGURES if each.name == name)


def test_a_gauge_of_several_processes_is_their_sum() -> None:
    with telling() as api, telling() as worker:
        looks = [[["pressroom_database_connections_in_use 2"]] * 2]
        found = values([api, worker], looks, of("Connections to the database"))
    assert found == [4.0]


def test_a_counter_is_shown_by_how_much_it_rises_and_never_falls() -> None:
    with telling() as api:
        looks = [[[REQUESTS.format(number)]] for number in (10, 20, 5)]
        first, second = values([api], looks, of("Requests"))
    assert first > 0
    # The process has started anew.
    assert second == 0


def test_a_time_is_that_of_the_events_between_two_looks() -> None:
    def told(seconds: float, count: int) -> list[list[str]]:
        return [[f"pressroom_s3_seconds_sum {seconds}", f"pressroom_s3_seconds_count {count}"]]

    with telling() as api:
        looks = [told(100.0, 10), told(101.0, 14), told(101.0, 14)]
        found = values([api], looks, of("Time of a call to object storage"))
    assert found == [0.25, 0.0]


def test_what_does_not_answer_is_left_out() -> None:
    gone = Teller("http://127.0.0.1:9/metrics")
    with telling() as api:
        looks = [[["pressroom_webhook_lag_seconds NaN", "pressroom_waiting_requests 3"], []]]
        tellers = [api, gone]
        assert values(tellers, looks, of("Requests that wait for a worker")) == [3.0]
        assert values(tellers, looks, of("Webhooks: time without a worker")) == []


def test_the_figures_are_there_while_somebody_looks() -> None:
    with telling() as api:
        api.lines = ["pressroom_database_up 1", "pressroom_redis_up 0"]
        figures = StatusFigures([MetricsSource(api.url, TOKEN)])
        asyncio.run(figures.look())
    assert figures.up() == {"database": True, "redis": False}


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_each_figure_is_of_a_metric_that_there_is(figure: Figure) -> None:
    endings = ("_sum", "_count") if figure.reading is Reading.MEAN else ("",)
    for ending in endings:
        labels = series()[figure.metric + ending]
        assert set(figure.labels) <= labels


def test_a_sandbox_by_itself_says_that_there_is_nothing_to_see() -> None:
    assert "no stack to look at" in fetch("/status").text
    assert '<a href="/status">' in fetch("/").text
