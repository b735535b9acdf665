"""Tests that callers who wait for a job get its result although Redis notifications fail."""

import contextlib
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path

from core import clock
from devstack import LOOPBACK
from devstack.harness.free_ports import free_port
from devstack.harness.polling import eventually
from devstack.harness.proxy import Proxy
from devstack.harness.running import Running
from devstack.harness.stack import Owner, Stack
from tests.support.images.uploads import await_jobs, upload
from tests.support.probe.bench import Bench
from tests.support.sizes import sized
from tests.support.stack.fleet import Fleet
from tests.support.stack.signals import pause_process, resume_process

WAITING_REQUESTS = sized(6, 100)


def test_requests_waiting_when_the_redis_subscriber_hangs_end_soon_after_their_job(
    probes: Bench, api: Running, media_worker: Running, redis_proxy: Proxy
) -> None:
    stack = probes.stack
    owner = stack.create_owner()
    ended_at, answered_at = _timed_upload(stack, owner)
    # While no fault is active, the first upload measures the delay from the end of a job to the
    # response. While the Redis subscriber hangs, each response must arrive within five times this
    # delay plus one second.
    max_delay = 5 * (answered_at - ended_at) + timedelta(seconds=1)
    pause_process(media_worker)
    with ThreadPoolExecutor(WAITING_REQUESTS) as threads:
        replies = [threads.submit(_timed_upload, stack, owner) for _ in range(WAITING_REQUESTS)]
        await_jobs(stack, WAITING_REQUESTS, "queued")
        eventually(lambda: redis_proxy.stall(having=b"SUBSCRIBE"), what="a subscriber to stall")
        resume_process(media_worker)
    for reply in replies:
        ended_at, answered_at = reply.result()
        assert answered_at - ended_at <= max_delay


def _timed_upload(stack: Stack, owner: Owner) -> tuple[datetime, datetime]:
    """Upload a picture, and return the times at which the job ended and the response arrived."""
    reply = upload(stack, owner)
    answered_at = clock.now()
    assert reply.status_code == 200, reply.text
    rows = stack.query(
        "SELECT finished_at FROM jobs JOIN attachments ON attachments.id = subject_id"
        " WHERE hash_id = %s",
        reply.json()["data"]["hash_id"],
    )
    ended_at = rows[0][0]
    assert isinstance(ended_at, datetime)
    return ended_at, answered_at


def test_hanging_redis_subscriber_is_replaced(api: Running, redis_proxy: Proxy) -> None:
    eventually(lambda: redis_proxy.stall(having=b"SUBSCRIBE") == 1, what="the first subscriber")
    eventually(lambda: redis_proxy.flowing(having=b"SUBSCRIBE") == 1, what="its successor")


def test_event_stream_of_another_api_process_shows_the_end_of_the_job(
    probes: Bench, fleet: Fleet, api: Running, media_worker: Running, tmp_path: Path
) -> None:
    """No notification about the job's end reaches the second API, so it must poll the database."""
    stack = probes.stack
    port = free_port()
    stack.start_api(port, **fleet.proxied())
    owner = stack.create_owner()
    pause_process(media_worker)
    upload(stack, owner, wait=0)
    job_id = stack.query("SELECT id FROM jobs")[0][0]
    url = f"http://{LOOPBACK}:{port}/jobs/{job_id}/events"
    with stack.client(owner.key) as client, client.stream("GET", url) as reply:
        resume_process(media_worker)
        text = "".join(reply.iter_text())
    assert text.count("event: job") >= 2
    assert '"status":"succeeded"' in text


def test_event_streams_cut_by_clients_are_released(
    probes: Bench, api: Running, media_worker: Running
) -> None:
    stack = probes.stack
    owner = stack.create_owner()
    pause_process(media_worker)
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
