from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack
from services import deployment_figures
from services.webhooks import waking
from services.webhooks.waking import EndpointWaker
from tests.support.feed.following import explain_scans
from tests.support.http.webhook_receiver import CREATED, LEFT, announce_events

ENDPOINT_COUNT = 2_000
OLD_EVENT_COUNT = 20_000
INSERT_ENDPOINT = (
    "INSERT INTO webhook_endpoints (user_id, url, types, place, event_id)"
    " VALUES (%s, 'https://example.com/', %s, 0, 0) RETURNING id"
)
JOB_STATUS_QUERY = "SELECT status FROM jobs WHERE kind = 'webhook.send' AND subject_id = %s"


@pytest.fixture
def idle_endpoint(empty_stack: Stack) -> Iterator[tuple[Owner, int]]:
    """An owner, and the id of their webhook endpoint, for which no event is waiting."""
    owner = empty_stack.create_owner()
    [(endpoint_id,)] = empty_stack.query(INSERT_ENDPOINT, owner.user_id, [CREATED.value])
    assert isinstance(endpoint_id, int)
    yield owner, endpoint_id
    empty_stack.query("UPDATE webhook_endpoints SET state = 'paused' WHERE id = %s", endpoint_id)


def test_event_starts_only_one_webhook_job_with_concurrent_wakers(
    empty_stack: Stack, idle_endpoint: tuple[Owner, int]
) -> None:
    owner, endpoint_id = idle_endpoint
    wakers = [EndpointWaker() for _ in range(4)]
    announce_events(empty_stack, owner, LEFT)
    assert [waker.wake_due(empty_stack.resources) for waker in wakers] == [0] * 4
    announce_events(empty_stack, owner, CREATED)
    with ThreadPoolExecutor(4) as pool:
        woken_counts = list(pool.map(lambda waker: waker.wake_due(empty_stack.resources), wakers))
    assert sum(woken_counts) == 1
    assert empty_stack.query(JOB_STATUS_QUERY, endpoint_id) == [("queued",)]
    # After the job has ended, ``wake_due`` queues the same job again instead of adding a new job.
    finish_job = "UPDATE jobs SET status = 'succeeded', finished_at = now() WHERE subject_id = %s"
    empty_stack.query(finish_job, endpoint_id)
    assert wakers[0].wake_due(empty_stack.resources) == 1
    assert empty_stack.query(JOB_STATUS_QUERY, endpoint_id) == [("queued",)]


def test_held_webhook_endpoint_is_woken_only_at_its_due_time(
    empty_stack: Stack, idle_endpoint: tuple[Owner, int]
) -> None:
    owner, endpoint_id = idle_endpoint
    waker = EndpointWaker()
    empty_stack.query("UPDATE webhook_endpoints SET is_held = true WHERE id = %s", endpoint_id)
    announce_events(empty_stack, owner, CREATED)
    assert waker.wake_due(empty_stack.resources) == 0
    empty_stack.query("UPDATE webhook_endpoints SET due_at = now() WHERE id = %s", endpoint_id)
    assert waker.wake_due(empty_stack.resources) == 1


def test_paused_webhook_endpoint_is_not_woken(
    empty_stack: Stack, idle_endpoint: tuple[Owner, int]
) -> None:
    owner, endpoint_id = idle_endpoint
    empty_stack.query("UPDATE webhook_endpoints SET state = 'paused' WHERE id = %s", endpoint_id)
    announce_events(empty_stack, owner, CREATED)
    assert EndpointWaker().wake_due(empty_stack.resources) == 0


def test_webhook_lag_is_the_time_that_events_wait_for_a_worker(
    empty_stack: Stack, idle_endpoint: tuple[Owner, int]
) -> None:
    owner, endpoint_id = idle_endpoint
    announce_events(empty_stack, owner, CREATED)
    EndpointWaker().wake_due(empty_stack.resources)
    make_overdue = "UPDATE jobs SET run_at = now() - interval '10 minutes' WHERE subject_id = %s"
    empty_stack.query(make_overdue, endpoint_id)
    assert (
        600
        <= deployment_figures.read_figures(empty_stack.resources.database).webhooks.late_seconds
        < 700
    )
    finish_job = "UPDATE jobs SET status = 'succeeded', finished_at = now() WHERE subject_id = %s"
    empty_stack.query(finish_job, endpoint_id)
    assert (
        deployment_figures.read_figures(empty_stack.resources.database).webhooks.late_seconds < 60
    )


def test_failed_webhook_job_pauses_before_it_is_started_again(
    empty_stack: Stack, idle_endpoint: tuple[Owner, int]
) -> None:
    owner, endpoint_id = idle_endpoint
    announce_events(empty_stack, owner, CREATED)
    assert EndpointWaker().wake_due(empty_stack.resources) == 1
    fail_job = (
        "UPDATE jobs SET status = 'failed', finished_at = now() - CAST(%s AS interval)"
        " WHERE subject_id = %s"
    )
    empty_stack.query(fail_job, "0 seconds", endpoint_id)
    # The first scan of a new ``EndpointWaker`` includes all owners, even those without new events.
    assert EndpointWaker().wake_due(empty_stack.resources) == 0
    empty_stack.query(fail_job, "2 minutes", endpoint_id)
    assert EndpointWaker().wake_due(empty_stack.resources) == 1


def test_frequent_webhook_scan_reads_the_feed_only_for_owners_with_new_events(
    empty_stack: Stack,
) -> None:
    owners = [empty_stack.create_owner().user_id for _ in range(20)]
    empty_stack.query(
        "INSERT INTO feed_events (place, user_id, type)"
        " SELECT 1 + n / 100, (%s::bigint[])[1 + n %% 20], 'subscription.created'"
        " FROM generate_series(1, %s) AS n",
        *(owners, OLD_EVENT_COUNT),
    )
    [(newest_event_id,)] = empty_stack.query("SELECT max(id) FROM feed_events")
    empty_stack.query(
        "INSERT INTO webhook_endpoints (user_id, url, types, place, event_id)"
        " SELECT (%s::bigint[])[1 + n %% 20], 'https://example.com/', '{subscription.created}',"
        " 1000000, %s FROM generate_series(1, %s) AS n",
        *(owners, newest_event_id, ENDPOINT_COUNT),
    )
    empty_stack.query("ANALYZE feed_events, webhook_endpoints")
    assert _count_feed_lookups(empty_stack, since=newest_event_id, full_scan=False) <= 20
    assert _count_feed_lookups(empty_stack, since=newest_event_id, full_scan=True) >= ENDPOINT_COUNT
    empty_stack.query("DELETE FROM webhook_endpoints WHERE user_id = ANY(%s)", owners)


def _count_feed_lookups(stack: Stack, **values: object) -> int:
    return sum(
        node["Actual Loops"]
        for node in explain_scans(stack, waking.FIND_DUE_ENDPOINTS, max_started=200, **values)
    )


def test_workers_of_other_queues_also_start_webhook_jobs(
    empty_stack: Stack, idle_endpoint: tuple[Owner, int]
) -> None:
    """Operators see the waiting jobs even if no worker processes the webhook queue."""
    owner, endpoint_id = idle_endpoint
    worker = empty_stack.start_worker("media")
    try:
        announce_events(empty_stack, owner, CREATED)
        eventually(
            lambda: empty_stack.query(JOB_STATUS_QUERY, endpoint_id) == [("queued",)],
            within=60,
            what="its job",
        )
    finally:
        worker.stop()
