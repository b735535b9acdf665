"""Tests of the health checks and metrics that operators and monitoring programs read."""

import math
from collections.abc import Iterator

import httpx2
import pytest
from sqlalchemy import make_url

from api.waiting.queue_ages import MAX_QUEUE_SECONDS_WHILE_WAITING
from core.queues import Queue
from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from integrations.llm.port import Usage
from services.composer import call_charges
from storage.redis.canaries import Canaries
from storage.task_messages import queue_name
from tests.support.http.replies import data, problem, send
from tests.support.lists.subscribers import trace_for
from tests.support.stack.maintenance import run_maintenance

DEPENDENCIES = {"database", "redis", "broker", "objects"}


def test_healthz_reports_a_running_process_even_without_its_dependencies(
    stranger: httpx2.Client, disconnected_api: httpx2.Client
) -> None:
    for client in (stranger, disconnected_api):
        reply = client.get("/healthz")
        assert (reply.status_code, reply.json()) == (200, {"status": "ok"})


def test_readyz_names_the_state_of_each_dependency(stranger: httpx2.Client) -> None:
    reply = stranger.get("/readyz")
    assert reply.status_code == 200
    assert reply.json() == {"status": "ok", "dependencies": dict.fromkeys(DEPENDENCIES, "ok")}


def test_readyz_returns_503_and_names_unavailable_dependencies(
    disconnected_api: httpx2.Client,
) -> None:
    reply = disconnected_api.get("/readyz")
    assert reply.status_code == 503
    missing = dict.fromkeys(DEPENDENCIES, "unavailable")
    assert reply.json() == {"status": "unavailable", "dependencies": missing}
    assert "secret-word" not in reply.text


def test_reader_page_shows_a_friendly_error_when_the_database_is_down(
    stack: Stack, disconnected_api: httpx2.Client
) -> None:
    reply = disconnected_api.get("/unsubscribe", params={"trace_id": trace_for(stack, 1, 1)})
    assert reply.status_code == 503
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    assert reply.headers["retry-after"] == "1"
    assert "<h1>Something went wrong</h1>" in reply.text
    assert reply.headers["x-request-id"] in reply.text
    assert "secret-word" not in reply.text


def shown(metrics_client: httpx2.Client, line: str) -> float:
    """Return the value of a metric with its labels, or NaN if the metric is missing."""
    text = metrics_client.get("/metrics").raise_for_status().text
    found = [each for each in text.splitlines() if each.startswith(f"{line} ")]
    return float(found[0].split()[-1]) if found else math.nan


@pytest.fixture
def metrics_token(stack: Stack) -> str:
    return stack.environment["PRESSROOM_METRICS_TOKEN"]


@pytest.fixture
def metrics_client(stack: Stack, metrics_token: str) -> Iterator[httpx2.Client]:
    """An HTTP client that authenticates with the token for the metrics route."""
    with stack.client(metrics_token) as client:
        yield client


def test_metrics_require_the_metrics_token(
    stranger: httpx2.Client, client: httpx2.Client, metrics_token: str
) -> None:
    problem(stranger.get("/metrics"), 401, "auth.metrics_token")
    problem(client.get("/metrics"), 401, "auth.metrics_token")
    for sent in (f"Bearer {metrics_token}x", f"Basic {metrics_token}", metrics_token, "Bearer "):
        headers = {"Authorization": sent.strip()}
        problem(stranger.get("/metrics", headers=headers), 401, "auth.metrics_token")
    problem(stranger.get("/metrics", params={"token": metrics_token}), 401, "auth.metrics_token")


def test_metrics_count_requests_by_route_template_and_never_by_url(
    stranger: httpx2.Client, client: httpx2.Client, metrics_token: str
) -> None:
    record = data(send(client))
    client.get(f"/attachments/{record['hash_id']}")
    client.get(f"/{record['pathname']}")
    client.get("/no/such/place")
    headers = {"Authorization": f"bearer {metrics_token}"}
    reply = stranger.get("/metrics", headers=headers)
    assert reply.status_code == 200
    assert reply.headers["content-type"].startswith("text/plain")
    text = reply.text
    counted = 'pressroom_requests_total{method="GET",route="/attachments/{hash_id}",status="200"}'
    assert counted in text
    assert 'route="/media/{filename}"' in text
    assert 'route="unmatched",status="404"' in text
    assert record["hash_id"] not in text
    assert "no/such/place" not in text
    assert "pressroom_waiting_requests 0.0" in text


def test_metrics_count_queued_and_due_jobs(
    stack_without_workers: Stack, client_without_workers: httpx2.Client
) -> None:
    data(send(client_without_workers, prefer="respond-async"), 202)
    labels = ['pressroom_jobs{queue="media",status="queued"}']
    labels += ['pressroom_due_jobs{kind="attachment.process",queue="media"}']
    with stack_without_workers.client(
        stack_without_workers.environment["PRESSROOM_METRICS_TOKEN"]
    ) as operator:
        eventually(
            lambda: all(shown(operator, each) >= 1 for each in labels), what="the job that waits"
        )
        assert shown(operator, 'pressroom_job_oldest_seconds{queue="media"}') > 0
        # The metrics also contain a count for queues without jobs.
        assert shown(operator, 'pressroom_jobs{queue="money",status="running"}') == 0


def test_metrics_show_the_faults_found_by_the_daily_ledger_verification(
    stack: Stack, metrics_client: httpx2.Client
) -> None:
    run_maintenance(stack, "credits.verify")
    eventually(
        lambda: shown(metrics_client, "pressroom_ledger_faults") == 0, what="the check's result"
    )


def test_metrics_count_calls_and_tokens_and_seconds_of_the_language_model(
    stack: Stack, metrics_client: httpx2.Client
) -> None:
    model = "of/metrics:7b"
    for used in (Usage(model, "answered", 100, 20, 1.5), Usage(model, "failed", 7, 0, 0.5)):
        call_charges.record_usage(stack.resources.redis, used)
    for line, number in (
        (f'calls_total{{model="{model}",outcome="answered"}}', 1),
        (f'calls_total{{model="{model}",outcome="failed"}}', 1),
        (f'tokens_total{{direction="in",model="{model}"}}', 107),
        (f'tokens_total{{direction="out",model="{model}"}}', 20),
        (f'seconds_total{{model="{model}"}}', 2.0),
    ):
        assert shown(metrics_client, f"pressroom_llm_{line}") == number


# The role is that of other stacks too, which may need some more meanwhile.
@pytest.mark.tier("processes")
@pytest.mark.parametrize(
    ("limited", "column", "room"), [("DATABASE", "datname", 3), ("ROLE", "usename", 60)]
)
def test_metrics_show_the_database_connection_limit_that_is_closest_to_exhaustion(
    stack_without_workers: Stack,
    client_without_workers: httpx2.Client,
    limited: str,
    column: str,
    room: int,
) -> None:
    client_without_workers.headers["Authorization"] = (
        f"Bearer {stack_without_workers.environment['PRESSROOM_METRICS_TOKEN']}"
    )
    count = "pressroom_database_server_connections"

    def limit_is(wanted: int) -> bool:
        return (
            shown(client_without_workers, f"{count}_limit") == wanted
            and shown(client_without_workers, count) > 0
        )

    of_server = (
        "SELECT current_setting('max_connections')::int"
        " - current_setting('superuser_reserved_connections')::int"
    )
    [(most,)] = stack_without_workers.query(of_server)
    eventually(lambda: limit_is(int(str(most))), what="the limit of the server")
    url = make_url(stack_without_workers.environment["PRESSROOM_DATABASE_URL"])
    name = url.database if limited == "DATABASE" else url.username
    here = f"SELECT count(*) FROM pg_stat_activity WHERE {column} = %s"
    [(open_now,)] = stack_without_workers.query(here, name)
    few = int(str(open_now)) + room
    stack_without_workers.query(f'ALTER {limited} "{name}" CONNECTION LIMIT {few}')
    try:
        eventually(lambda: limit_is(few), what="the nearer limit")
    finally:
        stack_without_workers.query(f'ALTER {limited} "{name}" CONNECTION LIMIT -1')


def test_metrics_still_show_process_figures_when_all_dependencies_are_down(
    disconnected_api: httpx2.Client, metrics_token: str
) -> None:
    disconnected_api.get("/healthz")
    headers = {"Authorization": f"Bearer {metrics_token}"}
    with httpx2.Client(base_url=disconnected_api.base_url, headers=headers, timeout=30) as operator:
        for name in ("database", "redis", "broker", "objects"):
            assert shown(operator, f"pressroom_{name}_up") == 0
        counted = 'pressroom_requests_total{method="GET",route="/healthz",status="200"}'
        assert shown(operator, counted) >= 1
        # Metrics that come from the database are missing.
        assert math.isnan(shown(operator, "pressroom_webhook_lag_seconds"))
        assert math.isnan(shown(operator, 'pressroom_jobs{queue="media",status="queued"}'))


def test_metrics_are_cached_so_that_two_collectors_cause_one_database_read(
    stack: Stack, metrics_client: httpx2.Client
) -> None:
    change = "UPDATE maintenance SET last_error = %s WHERE name = 'backup.journal'"
    label = 'pressroom_maintenance_failed{maintenance="backup.journal"}'

    def shows_what_was() -> bool:
        """Return whether the second of two reads returns the same value despite a change."""
        stack.query(change, "for the test")
        first = shown(metrics_client, label)
        stack.query(change, None)
        return first == shown(metrics_client, label) == 1

    eventually(shows_what_was, what="one answer for two collectors")
    eventually(lambda: shown(metrics_client, label) == 0, what="the next read")


def test_metrics_show_how_long_a_canary_message_takes_through_each_queue(
    stack: Stack, metrics_client: httpx2.Client
) -> None:
    line = 'pressroom_canary_seconds{queue="media"}'
    eventually(lambda: not math.isnan(shown(metrics_client, line)), what="the canary of a queue")
    assert stack.resources.redis.llen(queue_name(Queue.MEDIA)) <= 1


def test_delay_of_a_queue_grows_until_its_canary_message_arrives(stack: Stack) -> None:
    canaries, queue = Canaries(stack.resources.redis), "still"
    sent = canaries.start_if_due(queue)
    assert sent is not None
    # Each queue has at most one canary in progress.
    assert canaries.start_if_due(queue) is None
    first = canaries.read_delays()[queue]
    eventually(lambda: canaries.read_delays()[queue] > first, what="a growing time")
    canaries.record_arrival(queue, sent, "1.0")
    took = canaries.read_delays()[queue]
    assert took > first
    assert canaries.read_delays()[queue] == took


def test_lost_canary_message_is_sent_again_before_callers_are_rejected(stack: Stack) -> None:
    redis, queue = stack.resources.redis, "lost"
    canaries = Canaries(redis)
    assert canaries.start_if_due(queue) is not None
    now, _ = redis.time()
    moment = str(now - MAX_QUEUE_SECONDS_WHILE_WAITING / 2 - 1)
    redis.hset("pressroom:canaries", mapping={f"{queue}:sent": moment, f"{queue}:waiting": moment})
    sent = canaries.start_if_due(queue)
    assert sent is not None
    canaries.record_arrival(queue, sent, "1.0")
    assert canaries.read_delays()[queue] < MAX_QUEUE_SECONDS_WHILE_WAITING / 2


def test_queue_without_recent_canary_messages_is_reported_as_silent(stack: Stack) -> None:
    """The queue's only worker hangs and sends no more canaries, so that no canary can be late."""
    redis, queue = stack.resources.redis, "silent"
    canaries = Canaries(redis)
    sent = canaries.start_if_due(queue)
    assert sent is not None
    canaries.record_arrival(queue, sent, "1.0")
    now, _ = redis.time()
    for silent, is_shown in ((20, False), (40, True), (100_000, False)):
        redis.hset("pressroom:canaries", f"{queue}:sent", str(now - silent))
        assert (canaries.read_delays_or_silence()[queue] >= silent) == is_shown
        # API calls are only refused because of times that canaries measured.
        assert canaries.read_delays()[queue] < silent
    redis.hdel("pressroom:canaries", f"{queue}:sent", f"{queue}:took")
