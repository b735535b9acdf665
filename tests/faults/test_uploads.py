"""Tests that uploads succeed although a worker, the broker or the database fails.

Also tests that callers who disconnect during an upload leave no resources behind.
"""

import contextlib
import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from decimal import Decimal
from functools import partial

import httpx2
import pytest

from api.limits.bulkheads import SINGLE_STATEMENTS, TRANSACTION_THREADS
from devstack.harness.polling import eventually
from devstack.harness.proxy import Proxy
from devstack.harness.running import Running
from devstack.harness.stack import Owner, Stack
from tests.support.credits.credits import balance, consume, grant
from tests.support.http.replies import data
from tests.support.images.pictures import photo
from tests.support.images.uploads import await_jobs, count_ready_attachments, upload
from tests.support.observability.scraping import scrape_api
from tests.support.probe.bench import Bench
from tests.support.sizes import sized
from tests.support.stack.fleet import Fleet
from tests.support.stack.signals import count_descriptors, pause_process, resume_process

UPLOADS = sized(8, 100)
DISCONNECTING_CALLERS = sized(60, 10_000)
CONCURRENT_CALLERS = 20
# Each of the API's 24 threads may have three connections: to Postgres, to Redis and to S3.
MAX_POOLED_CONNECTIONS = 3 * 24


@contextmanager
def uploading(
    stack: Stack,
    owner: Owner,
    count: int = 1,
    *,
    picture: bytes | None = None,
    renditions: bool = False,
) -> Iterator[list[Future[httpx2.Response]]]:
    """Start uploads in the background, and wait for their responses when the block ends."""
    with ThreadPoolExecutor(count) as threads:
        send_upload = partial(upload, stack, owner, picture=picture, renditions=renditions)
        yield [threads.submit(send_upload) for _ in range(count)]


@pytest.fixture
def slow_picture() -> bytes:
    return photo(4000, 3000, quality=60)


@pytest.mark.parametrize(
    "victim", [pytest.param("main process", marks=pytest.mark.tier("fast")), "pool processes"]
)
def test_upload_returns_200_although_its_media_worker_is_killed(
    probes: Bench, fleet: Fleet, api: Running, slow_picture: bytes, victim: str
) -> None:
    stack = probes.stack
    media = fleet.start_media()
    with uploading(stack, stack.create_owner(), picture=slow_picture) as replies:
        await_jobs(stack, 1, "running")
        if victim == "main process":
            media.kill()
            fleet.start_media()
        else:
            for pid in media.children():
                os.kill(pid, signal.SIGKILL)
    reply = replies[0].result()
    assert reply.status_code == 200, reply.text
    assert stack.query("SELECT attempt, crashes FROM jobs") == [(2, 1)]


def test_renditions_left_by_killed_worker_are_completed_by_the_next_worker(
    probes: Bench, fleet: Fleet, api: Running, slow_picture: bytes
) -> None:
    """The test kills the worker as soon as the first rendition is in the object storage."""
    stack = probes.stack
    media = fleet.start_media()
    owner = stack.create_owner()
    earlier_renditions = set(stack.stored("renditions/"))

    def find_new() -> set[str]:
        return set(stack.stored("renditions/")) - earlier_renditions

    with uploading(stack, owner, picture=slow_picture, renditions=True) as replies:
        eventually(find_new, what="a first rendition")
        media.kill()
        renditions_at_the_kill = find_new()
        fleet.start_media()
    probes.all_finished(within=60)
    with stack.client(owner.key) as client:
        # Get the attachment again, because on a slow machine, the API responds to an upload before
        # the picture's renditions exist.
        record = data(client.get(f"/attachments/{replies[0].result().json()['data']['hash_id']}"))
    folder = f"renditions/{record['hash_id']}"
    files = [record["thumbnail"], *record["renditions"]]
    expected = [f"{folder}/{each['filename']}" for each in files]
    assert len(expected) == 5
    assert renditions_at_the_kill <= set(expected)
    assert find_new() == set(expected)
    assert stack.query("SELECT key FROM object_removals WHERE key LIKE 'renditions/%%'") == []
    for each in files:
        with stack.client() as reader:
            assert len(reader.get(each["view_url"]).content) == each["size"]


@pytest.mark.tier("fast")
def test_waiting_uploads_return_200_after_redis_flush(
    probes: Bench, api: Running, media_worker: Running
) -> None:
    stack = probes.stack
    pause_process(media_worker)
    with uploading(stack, stack.create_owner(), UPLOADS) as replies:
        await_jobs(stack, UPLOADS, "queued")
        stack.resources.redis.flushall()
        resume_process(media_worker)
    assert {reply.result().status_code for reply in replies} == {200}
    assert count_ready_attachments(stack) == UPLOADS


@pytest.mark.tier("fast")
def test_upload_returns_200_although_the_api_cannot_reach_the_broker(
    probes: Bench, api: Running, media_worker: Running, redis_proxy: Proxy
) -> None:
    stack = probes.stack
    redis_proxy.refuse()
    reply = upload(stack, stack.create_owner())
    assert reply.status_code == 200, reply.text


@pytest.mark.tier("fast")
@pytest.mark.parametrize("deliver", [True, False], ids=["committed", "not committed"])
def test_upload_repeated_with_its_idempotency_key_succeeds_after_lost_commit(
    probes: Bench, api: Running, media_worker: Running, postgres_proxy: Proxy, *, deliver: bool
) -> None:
    stack = probes.stack
    owner = stack.create_owner()
    key = "one-and-the-same-key"
    postgres_proxy.cut_at(b"COMMIT", after=b"INSERT INTO jobs", deliver=deliver)
    first = upload(stack, owner, key=key)
    assert postgres_proxy.sprung.is_set()
    assert first.status_code == 503
    assert first.json()["code"] == "service.unavailable"
    second = upload(stack, owner, key=key)
    assert second.status_code == 200, second.text
    assert second.headers.get("Idempotent-Replayed") == ("true" if deliver else None)
    assert stack.query("SELECT count(*) FROM attachments") == [(1,)]


@pytest.mark.tier("fast")
def test_charge_succeeds_although_each_database_statement_is_slow(
    probes: Bench, api: Running, postgres_proxy: Proxy
) -> None:
    owner = probes.stack.create_owner()
    grant(probes.stack, owner.user_id, "1")
    postgres_proxy.delay(0.2)
    with probes.stack.client(owner.key) as client:
        assert consume(client, "0.4").status_code == 200
        assert balance(client) == Decimal("0.6")


def test_disconnected_upload_callers_leave_no_connections_or_descriptors(
    probes: Bench, api: Running, media_worker: Running
) -> None:
    stack = probes.stack
    pause_process(media_worker)
    owner = stack.create_owner()
    for _ in range(3):
        _upload_and_disconnect(stack, owner, CONCURRENT_CALLERS)
    eventually(lambda: _count_waiting_requests(stack) == 0, what="the first callers' end")
    descriptors = count_descriptors(api)
    for _ in range(DISCONNECTING_CALLERS // CONCURRENT_CALLERS):
        _upload_and_disconnect(stack, owner, CONCURRENT_CALLERS)
    eventually(lambda: _count_waiting_requests(stack) == 0, what="the last callers' end")
    assert _count_database_connections(stack) <= TRANSACTION_THREADS + SINGLE_STATEMENTS
    # While callers upload files and disconnect, the API's connection pools may open additional
    # connections, but far fewer connections than there are callers.
    max_descriptors = descriptors + min(DISCONNECTING_CALLERS // 2, MAX_POOLED_CONNECTIONS)
    eventually(lambda: count_descriptors(api) <= max_descriptors, what="released descriptors")
    resume_process(media_worker)
    assert upload(stack, owner, wait=60).status_code == 200


def _upload_and_disconnect(stack: Stack, owner: Owner, callers: int) -> None:
    """Send uploads from concurrent callers, who disconnect half a second after sending the file.

    No upload finishes before its caller disconnects, because the media worker is paused.
    """

    def call() -> None:
        files = {"file": ("photo.jpg", photo(64, 48))}
        with stack.client(owner.key) as client, contextlib.suppress(httpx2.ReadTimeout):
            client.post("/attachments", files=files, timeout=httpx2.Timeout(20, read=0.5))

    with ThreadPoolExecutor(callers) as threads:
        for call_ended in [threads.submit(call) for _ in range(callers)]:
            call_ended.result()


def _count_waiting_requests(stack: Stack) -> float:
    return scrape_api(stack).value("pressroom_waiting_requests")


def _count_database_connections(stack: Stack) -> int:
    rows = stack.query(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name = 'pressroom-api'"
    )
    return int(str(rows[0][0]))
