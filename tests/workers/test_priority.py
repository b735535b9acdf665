"""Tests that workers with CPU-bound jobs leave the CPU to the API and to all other workers."""

import os
from pathlib import Path

import psutil
import pytest

from devstack.harness.running import Running
from devstack.harness.stack import Owner, Stack
from tests.support.http.replies import data
from tests.support.images.pictures import photo

NORMAL = 0
LOW = 5


def test_computing_worker_and_its_children_have_low_priority(stack: Stack, owner: Owner) -> None:
    with stack.client(owner.key) as client:
        files = {"file": ("photo.jpg", photo(64, 48))}
        reply = client.post("/attachments", files=files, headers={"Prefer": "wait=30"})
    assert data(reply)["mime_type"] == "image/webp"
    worker = _find_process(stack, "worker-media-bulk-export")
    commands = [" ".join(each.cmdline()) for each in _list_family(worker)]
    assert any("services.attachments.isolation" in command for command in commands), commands
    assert {each.nice() for each in _list_family(worker)} == {LOW}


@pytest.mark.parametrize("name", ["api", "worker-request"])
def test_processes_that_answer_requests_have_normal_priority(stack: Stack, name: str) -> None:
    running = _find_process(stack, name)
    assert {each.nice() for each in _list_family(running)} == {NORMAL}
    assert _read_session_priority(running) in (NORMAL, None)


def test_session_of_computing_worker_has_low_priority(stack: Stack) -> None:
    running = _find_process(stack, "worker-media-bulk-export")
    assert os.getsid(running.pid) == running.pid
    if (priority := _read_session_priority(running)) is None:
        pytest.skip("Linux doesn't divide the CPU time between sessions here")
    assert priority == LOW


def _find_process(stack: Stack, name: str) -> Running:
    [running] = [each for each in stack.processes if each.name.startswith(name)]
    return running


def _list_family(running: Running) -> list[psutil.Process]:
    process = psutil.Process(running.pid)
    return [process, *process.children(recursive=True)]


def _read_session_priority(running: Running) -> int | None:
    """Return the nice value of a process's session, or ``None`` if sessions have no nice value."""
    path = Path(f"/proc/{running.pid}/autogroup")
    text = path.read_text() if path.exists() else ""
    return int(text.rpartition("nice")[2]) if text else None
