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


def read_metric(metrics_client: httpx2.Client, name_with_labels: str) -> float:
    """Return the value of a metric with these labels, or NaN if the metric is missing."""
    text = metrics_client.get("/metrics").raise_for_status().text
    lines = [each for each in text.splitlines() if each.startswith(f"{name_with_labels} ")]
    return float(lines[0].split()[-1]) if lines else math.nan


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
    for header_value in (
        f"Bearer {metrics_token}x",
        f"Basic {metrics_token}",
        metrics_token,
        "Bearer ",
    ):
        headers = {"Authorization": header_value.strip()}
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
    request_count = (
        'pressroom_requests_total{method="GET",route="/attachments/{hash_id}",status="200"}'
    )
    assert request_count in text
    assert 'route="/media/{filename}"' in text
    assert 'route="unmatched",status="404"' in text
    assert record["hash_id"] not in text
    assert "no/such/place" not in text
    assert "pressroom_waiting_requests 0.0" in text


def test_metrics_count_queued_and_due_jobs(
    stack_without_workers: Stack, client_without_workers: httpx2.Client
) -> None:
    data(send(client_without_workers, prefer="respond-async"), 202)
    metrics = ['pressroom_jobs{queue="media",status="queued"}']
    metrics += ['pressroom_due_jobs{kind="attachment.process",queue="media"}']
    with stack_without_workers.client(
        stack_without_workers.environment["PRESSROOM_METRICS_TOKEN"]
    ) as operator:
        eventually(
            lambda: all(read_metric(operator, each) >= 1 for each in metrics),
            what="the queued job",
        )
        assert read_metric(operator, 'pressroom_job_oldest_seconds{queue="media"}') > 0
        # The metrics also contain a count for queues without jobs.
        assert read_metric(operator, 'pressroom_jobs{queue="money",status="running"}') == 0


def test_metrics_show_the_faults_found_by_the_daily_ledger_verification(
    stack: Stack, metrics_client: httpx2.Client
) -> None:
    run_maintenance(stack, "credits.verify")
    eventually(
        lambda: read_metric(metrics_client, "pressroom_ledger_faults") == 0,
        what="the check's result",
    )


def test_metrics_count_calls_and_tokens_and_seconds_of_the_language_model(
    stack: Stack, metrics_client: httpx2.Client
) -> None:
    model = "of/metrics:7b"
    for usage in (Usage(model, "answered", 100, 20, 1.5), Usage(model, "failed", 7, 0, 0.5)):
        call_charges.record_usage(stack.resources.redis, usage)
    for metric, value in (
        (f'calls_total{{model="{model}",outcome="answered"}}', 1),
        (f'calls_total{{model="{model}",outcome="failed"}}', 1),
        (f'tokens_total{{direction="in",model="{model}"}}', 107),
        (f'tokens_total{{direction="out",model="{model}"}}', 20),
        (f'seconds_total{{model="{model}"}}', 2.0),
    ):
        assert read_metric(metrics_client, f"pressroom_llm_{metric}") == value


# Other test stacks use the same database role, so the role's connection limit leaves 60 connections
# for them.
@pytest.mark.tier("processes")
@pytest.mark.parametrize(
    ("limited_object", "column", "spare_connections"),
    [("DATABASE", "datname", 3), ("ROLE", "usename", 60)],
)
def test_metrics_show_the_database_connection_limit_that_is_closest_to_exhaustion(
    stack_without_workers: Stack,
    client_without_workers: httpx2.Client,
    limited_object: str,
    column: str,
    spare_connections: int,
) -> None:
    client_without_workers.headers["Authorization"] = (
        f"Bearer {stack_without_workers.environment['PRESSROOM_METRICS_TOKEN']}"
    )
    metric = "pressroom_database_server_connections"

    def shows_limit(expected_limit: int) -> bool:
        return (
            read_metric(client_without_workers, f"{metric}_limit") == expected_limit
            and read_metric(client_without_workers, metric) > 0
        )

    server_limit_query = (
        "SELECT current_setting('max_connections')::int"
        " - current_setting('superuser_reserved_connections')::int"
    )
    [(server_limit,)] = stack_without_workers.query(server_limit_query)
    eventually(lambda: shows_limit(int(str(server_limit))), what="the limit of the server")
    url = make_url(stack_without_workers.environment["PRESSROOM_DATABASE_URL"])
    name = url.database if limited_object == "DATABASE" else url.username
    connections_query = f"SELECT count(*) FROM pg_stat_activity WHERE {column} = %s"
    [(open_connections,)] = stack_without_workers.query(connections_query, name)
    near_limit = int(str(open_connections)) + spare_connections
    stack_without_workers.query(f'ALTER {limited_object} "{name}" CONNECTION LIMIT {near_limit}')
    try:
        eventually(lambda: shows_limit(near_limit), what="the limit that is closer to exhaustion")
    finally:
        stack_without_workers.query(f'ALTER {limited_object} "{name}" CONNECTION LIMIT -1')


def test_metrics_still_show_process_figures_when_all_dependencies_are_down(
    disconnected_api: httpx2.Client, metrics_token: str
) -> None:
    disconnected_api.get("/healthz")
    headers = {"Authorization": f"Bearer {metrics_token}"}
    with httpx2.Client(base_url=disconnected_api.base_url, headers=headers, timeout=30) as operator:
        for name in ("database", "redis", "broker", "objects"):
            assert read_metric(operator, f"pressroom_{name}_up") == 0
        request_count = 'pressroom_requests_total{method="GET",route="/healthz",status="200"}'
        assert read_metric(operator, request_count) >= 1
        # Metrics that come from the database are missing.
        assert math.isnan(read_metric(operator, "pressroom_webhook_lag_seconds"))
        assert math.isnan(read_metric(operator, 'pressroom_jobs{queue="media",status="queued"}'))


def test_metrics_are_cached_so_that_two_collectors_cause_one_database_read(
    stack: Stack, metrics_client: httpx2.Client
) -> None:
    set_error = "UPDATE maintenance SET last_error = %s WHERE name = 'backup.journal'"
    metric = 'pressroom_maintenance_failed{maintenance="backup.journal"}'

    def returns_cached_value() -> bool:
        """Change a metric between two reads, and return whether both reads get the old value."""
        stack.query(set_error, "for the test")
        first_value = read_metric(metrics_client, metric)
        stack.query(set_error, None)
        return first_value == read_metric(metrics_client, metric) == 1

    eventually(returns_cached_value, what="the same value for two collectors")
    eventually(lambda: read_metric(metrics_client, metric) == 0, what="the new value")


def test_metrics_show_how_long_a_canary_message_takes_through_each_queue(
    stack: Stack, metrics_client: httpx2.Client
) -> None:
    metric = 'pressroom_canary_seconds{queue="media"}'
    eventually(
        lambda: not math.isnan(read_metric(metrics_client, metric)), what="the canary of a queue"
    )
    assert stack.resources.redis.llen(queue_name(Queue.MEDIA)) <= 1


def test_delay_of_a_queue_grows_until_its_canary_message_arrives(stack: Stack) -> None:
    canaries = Canaries(stack.resources.redis)
    queue = "still"
    sent_at = canaries.start_if_due(queue)
    assert sent_at is not None
    # Each queue has at most one canary in progress.
    assert canaries.start_if_due(queue) is None
    first_delay = canaries.read_delays()[queue]
    eventually(lambda: canaries.read_delays()[queue] > first_delay, what="a growing delay")
    canaries.record_arrival(queue, sent_at, "1.0")
    final_delay = canaries.read_delays()[queue]
    assert final_delay > first_delay
    assert canaries.read_delays()[queue] == final_delay


def test_lost_canary_message_is_sent_again_before_callers_are_rejected(stack: Stack) -> None:
    redis = stack.resources.redis
    queue = "lost"
    canaries = Canaries(redis)
    assert canaries.start_if_due(queue) is not None
    now, _ = redis.time()
    sent_at = str(now - MAX_QUEUE_SECONDS_WHILE_WAITING / 2 - 1)
    redis.hset(
        "pressroom:canaries", mapping={f"{queue}:sent": sent_at, f"{queue}:waiting": sent_at}
    )
    second_sent_at = canaries.start_if_due(queue)
    assert second_sent_at is not None
    canaries.record_arrival(queue, second_sent_at, "1.0")
    assert canaries.read_delays()[queue] < MAX_QUEUE_SECONDS_WHILE_WAITING / 2


def test_queue_without_recent_canary_messages_is_reported_as_silent(stack: Stack) -> None:
    """The queue's only worker hangs and sends no more canaries, so that no canary can be late."""
    redis = stack.resources.redis
    queue = "silent"
    canaries = Canaries(redis)
    sent_at = canaries.start_if_due(queue)
    assert sent_at is not None
    canaries.record_arrival(queue, sent_at, "1.0")
    now, _ = redis.time()
    for silent_seconds, is_reported in ((20, False), (40, True), (100_000, False)):
        redis.hset("pressroom:canaries", f"{queue}:sent", str(now - silent_seconds))
        assert (canaries.read_delays_or_silence()[queue] >= silent_seconds) == is_reported
        # A canary is a message that measures the delay of its queue. The API rejects calls if a
        # canary measured a long delay, but not if the queue has no recent canary.
        assert canaries.read_delays()[queue] < silent_seconds
    redis.hdel("pressroom:canaries", f"{queue}:sent", f"{queue}:took")
