"""Tests that a post which takes too long, or crashes its child process, affects no other post."""

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from core.errors import DomainError
from devstack.harness.polling import eventually
from services.composer.requests import MetadataRequest
from services.composer.text import markup
from services.composer.text.post import MetadataField, Post
from services.composer.text_processes import TextProcesses

pytestmark = pytest.mark.stack

POST = Post("Bread", "# Bread\n\nWe *bake* with @anna, see https://good.example/a.\n\n- salt")


class CallersLeft(Exception):
    """Raised by a test instead of ``AllCallersLeft``.

    Pressroom raises ``AllCallersLeft`` to stop a request that no caller waits for.
    """


def allow_one_minute() -> float:
    return 60.0


@pytest.fixture
def text_processes() -> Iterator[TextProcesses]:
    with closing(TextProcesses(cpu_seconds=3.0)) as processes:
        yield processes


def child_pids() -> set[int]:
    return {child.pid for child in psutil.Process().children()}


def start_child(texts: TextProcesses) -> int:
    pids_before = child_pids()
    texts.read(POST, allow_one_minute)
    [pid] = child_pids() - pids_before
    return pid


def test_text_process_returns_same_result_as_direct_parsing_and_is_reused(
    text_processes: TextProcesses,
) -> None:
    child_pid = start_child(text_processes)
    pids = child_pids()
    assert text_processes.read(POST, allow_one_minute) == markup.parse_post(POST)
    request = MetadataRequest(Post("", "…"), frozenset({MetadataField.SLUG}))
    assert text_processes.write(request, allow_one_minute)["slug"].startswith("post-")
    assert child_pids() == pids
    assert child_pid in pids


@pytest.mark.parametrize(
    ("number", "code", "words"),
    [
        (signal.SIGSTOP, "request.too_slow", "The server is busy"),
        (signal.SIGKILL, "composer.post_unreadable", "the process crashed"),
    ],
)
def test_hanging_or_crashed_text_process_fails_only_its_own_post(
    text_processes: TextProcesses, number: signal.Signals, code: str, words: str
) -> None:
    stopped_pid = start_child(text_processes)
    os.kill(stopped_pid, signal.SIGSTOP)
    with ThreadPoolExecutor(2) as threads:
        failing_read = threads.submit(text_processes.read, POST, lambda: 4.0)
        eventually(lambda: text_processes._free.qsize() == 1, what="the post in the stopped child")
        # Meanwhile another child process reads a post of another thread.
        assert threads.submit(text_processes.read, POST, allow_one_minute).result().title == "Bread"
        assert not failing_read.done()
        os.kill(stopped_pid, number)
        with pytest.raises(DomainError) as error:
            failing_read.result()
    assert error.value.code == code
    assert words in error.value.message
    assert not psutil.pid_exists(stopped_pid)
    for _ in range(2):
        assert text_processes.read(POST, allow_one_minute) == markup.parse_post(POST)


def test_post_stops_waiting_for_a_text_process_when_its_caller_leaves(
    text_processes: TextProcesses,
) -> None:
    waits = iter((0.01, 0.01))

    def get_remaining_seconds() -> float:
        if (wait := next(waits, None)) is None:
            raise CallersLeft
        return wait

    children = [
        text_processes._take_child(allow_one_minute) for _ in range(text_processes._free.qsize())
    ]
    start = time.monotonic()
    with pytest.raises(CallersLeft):
        text_processes.read(POST, get_remaining_seconds)
    assert time.monotonic() - start < 2
    for child in children:
        text_processes._free.put(child)


def test_text_process_has_no_secrets_no_connections_and_cannot_fork(
    text_processes: TextProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRESSROOM_ENCRYPTION_KEYS", "do-not-pass-on")
    process = Path(f"/proc/{start_child(text_processes)}")
    limits = (process / "limits").read_text()
    assert [line.split()[-3] for line in limits.splitlines() if "processes" in line] == ["0"]
    if os.geteuid() == 0:  # Only root may read these files of a protected process.
        assert b"do-not-pass-on" not in (process / "environ").read_bytes()
        links = {str(link.readlink()) for link in (process / "fd").iterdir()}
        other_links = {link for link in links if not link.startswith("pipe:")}
        assert other_links == {os.devnull, str(process / "statm")}
