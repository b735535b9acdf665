"""Whatever happens to a worker or to the broker, an upload's own request still answers 200."""

import os
import signal

import pytest

from tests.faults.conftest import Fleet, pause, resume
from tests.faults.proxy import Proxy
from tests.faults.uploads import await_jobs, ready, upload, uploading
from tests.pictures import photo
from tests.probe.bench import Bench
from tests.sizes import sized
from tests.stack import Running, eventually

pytestmark = pytest.mark.fast

UPLOADS = sized(8, 100)


@pytest.fixture
def slow_picture() -> bytes:
    return photo(4000, 3000, quality=60)


@pytest.mark.parametrize("victim", ["main process", "pool processes"])
def test_upload_whose_media_worker_is_killed_is_answered_200(
    bench: Bench, fleet: Fleet, api: Running, slow_picture: bytes, victim: str
) -> None:
    stack, media = bench.stack, fleet.start_media()
    with uploading(stack, stack.new_owner(), picture=slow_picture) as replies:
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


def test_worker_killed_between_two_renditions_leaves_what_the_next_one_completes(
    bench: Bench, fleet: Fleet, api: Running, slow_picture: bytes
) -> None:
    """It is killed as soon as a rendition is in the storage."""
    stack, media = bench.stack, fleet.start_media()
    with uploading(stack, stack.new_owner(), picture=slow_picture, renditions=True) as replies:
        eventually(lambda: stack.stored("renditions/"), what="a first rendition")
        media.kill()
        at_the_kill = stack.stored("renditions/")
        fleet.start_media()
    record = replies[0].result().json()["data"]
    folder = f"renditions/{record['hash_id']}"
    expected = [f"{folder}/{each['filename']}" for each in record["renditions"]]
    assert len(expected) == 4
    assert set(at_the_kill) <= set(expected)
    assert sorted(stack.stored("renditions/")) == sorted(expected)
    assert stack.query("SELECT key FROM object_removals WHERE key LIKE 'renditions/%%'") == []
    for each in record["renditions"]:
        with stack.client() as reader:
            assert len(reader.get(each["view_url"]).content) == each["size"]


def test_uploads_waiting_at_a_flush_of_redis_are_all_answered_200(
    bench: Bench, api: Running, media: Running
) -> None:
    stack = bench.stack
    pause(media)
    with uploading(stack, stack.new_owner(), UPLOADS) as replies:
        await_jobs(stack, UPLOADS, "queued")
        stack.resources.redis.flushall()
        resume(media)
    assert {reply.result().status_code for reply in replies} == {200}
    assert ready(stack) == UPLOADS


def test_upload_is_answered_200_though_the_api_cannot_reach_the_broker(
    bench: Bench, api: Running, media: Running, redis_proxy: Proxy
) -> None:
    stack = bench.stack
    redis_proxy.refuse()
    reply = upload(stack, stack.new_owner())
    assert reply.status_code == 200, reply.text


@pytest.mark.parametrize("deliver", [True, False], ids=["committed", "not committed"])
def test_upload_whose_commit_was_cut_off_is_right_when_it_is_sent_again(
    bench: Bench, api: Running, media: Running, postgres_proxy: Proxy, *, deliver: bool
) -> None:
    stack = bench.stack
    owner, key = stack.new_owner(), "one-and-the-same-key"
    postgres_proxy.cut_at(b"COMMIT", after=b"INSERT INTO jobs", deliver=deliver)
    first = upload(stack, owner, key=key)
    assert postgres_proxy.sprung.is_set()
    assert first.status_code == 503
    assert first.json()["code"] == "service.unavailable"
    second = upload(stack, owner, key=key)
    assert second.status_code == 200, second.text
    assert second.headers.get("Idempotent-Replayed") == ("true" if deliver else None)
    assert stack.query("SELECT count(*) FROM attachments") == [(1,)]
