"""Whatever happens to a worker or to the broker, an upload's own request still answers 200."""

import os
import signal

import pytest

from tests.faults.conftest import pause, resume
from tests.faults.proxy import Proxy
from tests.faults.size import sized
from tests.faults.uploads import await_jobs, ready, start_media_worker, upload, uploading
from tests.pictures import photo
from tests.probe.bench import Bench

UPLOADS = sized(8, 100)


@pytest.fixture
def slow_picture() -> bytes:
    return photo(4000, 3000, quality=60)


@pytest.mark.parametrize("victim", ["main process", "pool process"])
def test_upload_whose_media_worker_is_killed_is_answered_200(
    bench: Bench, slow_picture: bytes, victim: str
) -> None:
    stack = bench.stack
    stack.start_api()
    worker = start_media_worker(stack)
    with uploading(stack, stack.new_owner(), picture=slow_picture) as replies:
        await_jobs(stack, 1, "running")
        if victim == "main process":
            worker.kill()
            start_media_worker(stack)
        else:
            os.kill(_at_work(worker.children()), signal.SIGKILL)
    reply = replies[0].result()
    assert reply.status_code == 200, reply.text
    assert stack.query("SELECT attempt, crashes FROM jobs") == [(2, 1)]


def _at_work(children: list[int]) -> int:
    """The pool's process: unlike the resource tracker and the like, it has a converter."""
    return next(pid for pid in children if _children(pid))


def _children(pid: int) -> list[str]:
    with open(f"/proc/{pid}/task/{pid}/children") as listed:  # noqa: PTH123 - of the kernel
        return listed.read().split()


def test_uploads_waiting_at_a_flush_of_redis_are_all_answered_200(bench: Bench) -> None:
    stack = bench.stack
    stack.start_api()
    worker = start_media_worker(stack, concurrency=2)
    pause(worker)
    with uploading(stack, stack.new_owner(), UPLOADS) as replies:
        await_jobs(stack, UPLOADS, "queued")
        stack.resources.redis.flushall()
        resume(worker)
    assert {reply.result().status_code for reply in replies} == {200}
    assert ready(stack) == UPLOADS


def test_upload_is_answered_200_though_the_api_cannot_reach_the_broker(
    bench: Bench, redis_proxy: tuple[Proxy, str]
) -> None:
    proxy, url = redis_proxy
    stack = bench.stack
    stack.start_api(PRESSROOM_REDIS_URL=url)
    start_media_worker(stack)
    proxy.refuse()
    reply = upload(stack, stack.new_owner())
    assert reply.status_code == 200, reply.text


@pytest.mark.parametrize("deliver", [True, False], ids=["committed", "not committed"])
def test_upload_whose_commit_was_cut_off_is_right_when_it_is_sent_again(
    bench: Bench, postgres_proxy: tuple[Proxy, str], *, deliver: bool
) -> None:
    proxy, url = postgres_proxy
    stack = bench.stack
    stack.start_api(PRESSROOM_DATABASE_URL=url)
    owner, key = stack.new_owner(), "one-and-the-same-key"
    proxy.cut_at(b"COMMIT", after=b"INSERT INTO jobs", deliver=deliver)
    first = upload(stack, owner, key=key)
    assert proxy.sprung.is_set()
    assert first.status_code == 503
    assert first.json()["code"] == "service.unavailable"
    start_media_worker(stack)
    second = upload(stack, owner, key=key)
    assert second.status_code == 200, second.text
    assert second.headers.get("Idempotent-Replayed") == ("true" if deliver else None)
    assert stack.query("SELECT count(*) FROM attachments") == [(1,)]
