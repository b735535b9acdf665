"""Tests the failover of a Redis behind Sentinels."""

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import httpx2
import pytest
from pydantic import SecretStr

from core.queues import Queue
from devstack.harness.free_ports import free_port
from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from devstack.supervisor.programs import is_responding
from storage.broker import Broker
from storage.task_messages import queue_name
from tests.support.composer import composing
from tests.support.images.uploads import count_ready_attachments, upload
from tests.support.stack.load import repeating
from tests.support.stack.sentinels import WatchedRedis, watched_redis

MAX_FAILOVER_SECONDS = 60.0
PAUSE_SECONDS = 0.1
UPLOAD_EVERY_SECONDS = 0.5
# Callers of the composer wait for only ten seconds, so that the load ends soon.
SHORT_WAIT = {"Prefer": "wait=10"}
COMPOSING_THREADS = 4


@dataclass
class ResponseStatuses:
    """The HTTP statuses of the responses to composer calls and to uploads, oldest first."""

    composer: list[int] = field(default_factory=list)
    uploads: list[int] = field(default_factory=list)


@contextmanager
def under_load(stack: Stack) -> Iterator[ResponseStatuses]:
    """Upload images and call the composer during the block.

    Calls to the composer wait for the texts, but uploads don't wait until the image is processed.
    """
    statuses = ResponseStatuses()
    owner = stack.create_owner()
    with stack.client(owner.key) as client:

        def compose() -> None:
            post = composing.make_unique_post()
            reply = composing.request_composer(client, composing.METADATA, post, headers=SHORT_WAIT)
            statuses.composer.append(reply.status_code)

        def send() -> None:
            statuses.uploads.append(upload(stack, owner, wait=0).status_code)

        composing_calls = repeating(*[compose] * COMPOSING_THREADS, pause=PAUSE_SECONDS)
        with composing_calls, repeating(send, pause=UPLOAD_EVERY_SECONDS):
            yield statuses


def is_healthy(stack: Stack) -> bool:
    with stack.client() as client:
        return bool(client.get("/readyz").json()["status"] == "ok")


@pytest.mark.slow
@pytest.mark.parametrize("failure_signal", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "hung"])
def test_redis_failover_to_replica_loses_no_accepted_work(
    make_stack: Callable[[str], Stack],
    tmp_path: Path,
    failure_signal: signal.Signals,
    record_property: Callable[..., None],
) -> None:
    stack = make_stack(f"failover-{failure_signal.name.lower()}")
    with watched_redis(tmp_path) as (watched, group):
        alive_files = _start(stack, watched, tmp_path)
        with under_load(stack) as statuses:
            # A worker first writes its alive file a second after it has begun to take jobs.
            eventually(
                lambda: (
                    count_ready_attachments(stack) > 1
                    and statuses.composer.count(200) > 3
                    and all(file.exists() for file in alive_files)
                ),
                within=60,
            )
            lost_primary = watched.master()
            assert lost_primary is not None
            pid = group.pids[lost_primary]
            os.kill(pid, failure_signal)
            began_at = time.monotonic()
            try:
                _await_recovery(stack, watched, statuses, alive_files, lost_primary=lost_primary)
            finally:
                os.kill(pid, signal.SIGCONT)
            record_property(
                "seconds until it was whole again", round(time.monotonic() - began_at, 1)
            )
        accepted = statuses.uploads.count(202)
        eventually(
            lambda: count_ready_attachments(stack) == accepted,
            within=60,
            what="every accepted upload",
        )
        # The API accepts uploads even while the broker is unavailable. During the failover, calls
        # to the composer may fail or time out.
        assert set(statuses.uploads) == {202}
        assert set(statuses.composer) <= {200, 503, 504}
        assert stack.query("SELECT max(crashes), max(attempt) FROM jobs") == [(0, 1)]
        assert [each.process.poll() for each in stack.processes] == [None] * len(stack.processes)
        stack.stop()


def _start(stack: Stack, watched: WatchedRedis, home: Path) -> list[Path]:
    """Start an API process and two workers, and return the files that the workers keep updating."""
    stack.environment["PRESSROOM_REDIS_URL"] = watched.url
    stack.start_api()
    files = [home / "media.alive", home / "request.alive"]
    for file, concurrency in zip(files, (2, 4), strict=True):
        stack.start_worker(file.stem, concurrency=concurrency, PRESSROOM_ALIVE_FILE=str(file))
    return files


def _await_recovery(
    stack: Stack,
    watched: WatchedRedis,
    statuses: ResponseStatuses,
    alive_files: list[Path],
    *,
    lost_primary: str,
) -> None:
    def is_promoted() -> bool:
        return watched.master() not in (None, lost_primary)

    deadline = time.monotonic() + MAX_FAILOVER_SECONDS
    eventually(is_promoted, within=MAX_FAILOVER_SECONDS, what="another primary")
    promoted_at = time.time()
    composer_results = statuses.composer.count(200)
    ready_uploads = count_ready_attachments(stack)

    def has_recovered() -> bool:
        return (
            statuses.composer.count(200) > composer_results + 3
            and count_ready_attachments(stack) > ready_uploads + 1
            and all(file.stat().st_mtime > promoted_at for file in alive_files)
            and is_healthy(stack)
        )

    remaining_seconds = deadline - time.monotonic()
    eventually(has_recovered, within=remaining_seconds, what="recovery with another primary")


@pytest.mark.slow
def test_flower_shows_queue_lengths_of_a_redis_behind_sentinels(
    make_stack: Callable[[str], Stack], tmp_path: Path
) -> None:
    stack = make_stack("flower-sentinels")
    port = free_port()
    with watched_redis(tmp_path) as (watched, _):
        # Flower reads only the first Redis database.
        url = watched.url.replace("/3?", "/0?")
        broker = Broker(stack.settings().model_copy(update={"redis_url": SecretStr(url)}))
        for _ in range(7):
            assert broker.send("probe.none", Queue.MEDIA, {})
        broker.close()
        stack.environment["PRESSROOM_REDIS_URL"] = url
        is_up = partial(is_responding, port, "/healthcheck")
        stack.start("flower", "flower", "--port", str(port), ready=is_up)
        password = stack.settings().flower_password
        assert password
        login = stack.settings().flower_user, password.get_secret_value()
        page = httpx2.get(f"http://127.0.0.1:{port}/broker", auth=login).raise_for_status().text
        words = re.sub(r"<[^>]*>", " ", page).split()
        assert words[words.index(queue_name(Queue.MEDIA)) + 1] == "7"
        stack.stop()
