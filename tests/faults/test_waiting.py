"""Requests that wait for a worker: none hangs, and none leaves anything behind."""

import contextlib
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

import httpx
import pytest

from api.limits.bulkheads import SINGLE_STATEMENTS, TRANSACTION_THREADS
from core import clock
from devstack import LOOPBACK
from tests.faults.conftest import Fleet, pause, resume
from tests.faults.proxy import Proxy
from tests.faults.uploads import await_jobs, upload
from tests.pictures import photo
from tests.ports import free_port
from tests.probe.bench import Bench
from tests.sizes import sized
from tests.stack import Owner, Running, Stack, eventually

WAITING = sized(6, 100)
LEAVING = sized(60, 10_000)
AT_ONCE = 20
# Connections to Postgres, Redis and S3: one for each of the API's threads.
POOLED = 3 * 24
PROMPT_SECONDS = 1.0


def test_requests_waiting_as_the_subscriber_goes_silent_end_within_a_second_of_their_job(
    bench: Bench, api: Running, media: Running, redis_proxy: Proxy
) -> None:
    stack = bench.stack
    pause(media)
    owner = stack.new_owner()
    with ThreadPoolExecutor(WAITING) as threads:
        replies = [threads.submit(_timed_upload, stack, owner) for _ in range(WAITING)]
        await_jobs(stack, WAITING, "queued")
        eventually(lambda: redis_proxy.stall(having=b"SUBSCRIBE"), what="a subscriber to silence")
        resume(media)
    for reply in replies:
        ended, answered = reply.result()
        assert (answered - ended).total_seconds() <= PROMPT_SECONDS


def _timed_upload(stack: Stack, owner: Owner) -> tuple[datetime, datetime]:
    """When the upload's job ended, and when its request did."""
    reply = upload(stack, owner)
    answered = clock.now()
    assert reply.status_code == 200, reply.text
    rows = stack.query(
        "SELECT finished_at FROM jobs JOIN attachments ON attachments.id = subject_id"
        " WHERE hash_id = %s",
        reply.json()["data"]["hash_id"],
    )
    ended = rows[0][0]
    assert isinstance(ended, datetime)
    return ended, answered


def test_subscriber_that_went_silent_is_replaced(api: Running, redis_proxy: Proxy) -> None:
    eventually(lambda: redis_proxy.stall(having=b"SUBSCRIBE") == 1, what="the first subscriber")
    eventually(lambda: redis_proxy.flowing(having=b"SUBSCRIBE") == 1, what="its successor")


@pytest.fixture
def watched(bench: Bench) -> httpx.Client:
    token = bench.stack.environment["PRESSROOM_METRICS_TOKEN"]
    return httpx.Client(
        base_url=bench.stack.api_url, headers={"Authorization": f"Bearer {token}"}, timeout=20
    )


@pytest.mark.fast
def test_callers_who_leave_leave_nothing_behind(
    bench: Bench, api: Running, media: Running, watched: httpx.Client
) -> None:
    stack = bench.stack
    pause(media)
    owner = stack.new_owner()
    for _ in range(3):
        _leave(stack, owner, AT_ONCE)
    eventually(lambda: _waiting(watched) == 0, what="the first callers' end")
    descriptors = _descriptors(api)
    for _ in range(LEAVING // AT_ONCE):
        _leave(stack, owner, AT_ONCE)
    eventually(lambda: _waiting(watched) == 0, what="the last callers' end")
    assert _connections(stack) <= TRANSACTION_THREADS + SINGLE_STATEMENTS
    # The pools may still grow, but not with the number of callers.
    most = descriptors + min(LEAVING // 2, POOLED)
    eventually(lambda: _descriptors(api) <= most, what="descriptors given back")
    resume(media)
    assert upload(stack, owner, wait=60).status_code == 200


def _leave(stack: Stack, owner: Owner, callers: int) -> None:
    """So many callers at once, each gone before its upload is done: nobody works on them."""

    def call() -> None:
        files = {"file": ("photo.jpg", photo(64, 48))}
        with stack.client(owner.key) as client, contextlib.suppress(httpx.ReadTimeout):
            client.post("/attachments", files=files, timeout=httpx.Timeout(20, read=0.5))

    with ThreadPoolExecutor(callers) as threads:
        for call_ended in [threads.submit(call) for _ in range(callers)]:
            call_ended.result()


def test_event_stream_of_another_process_than_was_asked_for_the_job_shows_its_end(
    bench: Bench, fleet: Fleet, api: Running, media: Running, tmp_path: Path
) -> None:
    """It is not notified, so it looks."""
    stack = bench.stack
    port = free_port()
    stack.start_api(port, **fleet.proxied())
    owner = stack.new_owner()
    pause(media)
    upload(stack, owner, wait=0)
    job_id = stack.query("SELECT id FROM jobs")[0][0]
    url = f"http://{LOOPBACK}:{port}/jobs/{job_id}/events"
    with stack.client(owner.key) as client, client.stream("GET", url) as reply:
        resume(media)
        text = "".join(reply.iter_text())
    assert text.count("event: job") >= 2
    assert '"status":"succeeded"' in text


def test_event_streams_that_are_cut_are_given_back(
    bench: Bench, api: Running, media: Running
) -> None:
    stack = bench.stack
    owner = stack.new_owner()
    pause(media)
    upload(stack, owner, wait=0)
    job_id = stack.query("SELECT id FROM jobs")[0][0]
    for _ in range(sized(2, 100)):
        with contextlib.ExitStack() as opened:
            for _ in range(10):
                client = opened.enter_context(stack.client(owner.key))
                reply = opened.enter_context(client.stream("GET", f"/jobs/{job_id}/events"))
                assert reply.status_code == 200
        eventually(lambda: _streamable(stack, owner, job_id), what="a free stream")
    assert api.process.poll() is None


def _streamable(stack: Stack, owner: Owner, job_id: object) -> bool:
    with contextlib.ExitStack() as opened:
        replies = []
        for _ in range(10):
            client = opened.enter_context(stack.client(owner.key))
            replies.append(opened.enter_context(client.stream("GET", f"/jobs/{job_id}/events")))
        return {reply.status_code for reply in replies} == {200}


def _waiting(watched: httpx.Client) -> float:
    text = watched.get("/metrics").text
    line = next(line for line in text.splitlines() if line.startswith("pressroom_waiting_requests"))
    return float(line.split()[1])


def _connections(stack: Stack) -> int:
    rows = stack.query(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name = 'pressroom-api'"
    )
    return int(str(rows[0][0]))


def _descriptors(running: Running) -> int:
    return sum(1 for _ in Path(f"/proc/{running.pid}/fd").iterdir())
