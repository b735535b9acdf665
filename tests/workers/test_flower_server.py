"""Flower's memory of tasks, from the events that workers send."""

import time
from typing import Any

from workers.flower_server import ReadableEvents


def send(state: ReadableEvents, kind: str, uuid: str, **more: Any) -> None:
    sent_by = {"hostname": "media@host", "pid": 1, "clock": 1, "utcoffset": 0}
    at = {"timestamp": time.time(), "local_received": time.time()}
    state.event({"type": f"task-{kind}", "uuid": uuid, **sent_by, **at, **more})


def shown(state: ReadableEvents) -> list[tuple[str, str]]:
    return [(task.name, task.state) for task in state.tasks.values()]


def test_flower_shows_a_task_with_its_queue_and_kind_after_it_has_finished() -> None:
    state = ReadableEvents()
    send(state, "received", "a", name="attachment.process", kwargs="{}")
    send(state, "succeeded", "a", result="", runtime=0.1)
    assert shown(state) == [("media/attachment.process", "SUCCESS")]


def test_flower_hides_tasks_without_a_name_and_periodic_tasks() -> None:
    state = ReadableEvents()
    # A worker got it before Flower listened.
    send(state, "started", "a")
    # Periodic work, which Flower leaves out.
    send(state, "received", "b", name="objects.remove", kwargs="{}")
    send(state, "succeeded", "b", result="", runtime=0.1)
    assert shown(state) == []
