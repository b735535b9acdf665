"""Tests which tasks Flower shows after it has received events from workers."""

import time
from typing import Any

from workers.flower_server import ReadableEvents


def send_event(state: ReadableEvents, kind: str, uuid: str, **fields: Any) -> None:
    sender = {"hostname": "media@host", "pid": 1, "clock": 1, "utcoffset": 0}
    times = {"timestamp": time.time(), "local_received": time.time()}
    state.event({"type": f"task-{kind}", "uuid": uuid, **sender, **times, **fields})


def list_tasks(state: ReadableEvents) -> list[tuple[str, str]]:
    return [(task.name, task.state) for task in state.tasks.values()]


def test_flower_shows_a_task_with_its_queue_and_kind_after_it_has_finished() -> None:
    state = ReadableEvents()
    send_event(state, "received", "a", name="attachment.process", kwargs="{}")
    send_event(state, "succeeded", "a", result="", runtime=0.1)
    assert list_tasks(state) == [("media/attachment.process", "SUCCESS")]


def test_flower_hides_tasks_without_a_name_and_periodic_tasks() -> None:
    state = ReadableEvents()
    # A worker received this task before Flower started, so the task has no name.
    send_event(state, "started", "a")
    # By default, Flower hides periodic tasks such as ``objects.remove``.
    send_event(state, "received", "b", name="objects.remove", kwargs="{}")
    send_event(state, "succeeded", "b", result="", runtime=0.1)
    assert list_tasks(state) == []
