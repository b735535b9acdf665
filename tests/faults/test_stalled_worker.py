"""Tests that a worker keeps touching the file PRESSROOM_ALIVE_FILE, unless the worker stalls."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from devstack.harness.embedded_services import Services
from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from tests.support.probe.bench import make_bench
from tests.support.stack.frozen_processes import frozen

pytestmark = pytest.mark.slow


def is_touched(file: Path) -> bool:
    """Return whether the worker changes the file's modification time within five seconds."""
    modified_at = file.stat().st_mtime_ns
    ends_at = time.monotonic() + 5.0
    while time.monotonic() < ends_at:
        if file.stat().st_mtime_ns != modified_at:
            return True
        time.sleep(0.05)
    return False


def test_alive_file_expires_for_stalled_worker_but_not_for_busy_worker(
    make_stack: Callable[[str], Stack], services: Services, tmp_path: Path
) -> None:
    bench = make_bench(make_stack("stalls"))
    file = tmp_path / "alive"
    worker = bench.start_worker(concurrency=1, PRESSROOM_ALIVE_FILE=str(file))
    eventually(file.exists, what="the first touch")

    bench.started(bench.enqueue(sleep=20))
    bench.enqueue()
    time.sleep(12)
    assert is_touched(file)

    for frozen_pid in (worker.pid, services.pids["valkey"]):
        with frozen(frozen_pid):
            eventually(lambda: not is_touched(file), within=30, what="an outdated file")
        eventually(lambda: is_touched(file), within=60, what="a touched file")
    worker.stop()
