"""Tests that long computations don't slow down API calls and short jobs."""

import psutil

from devstack.harness.polling import eventually
from devstack.harness.running import Running
from tests.support.probe.bench import Bench


def list_nice_values(worker: Running) -> set[int]:
    """Return the nice values of a worker and its child processes."""
    process = psutil.Process(worker.pid)
    return {each.nice() for each in (process, *process.children(recursive=True))}


def test_worker_for_computations_lets_other_processes_run_first(probes: Bench) -> None:
    mail_worker = probes.start_worker("mail", concurrency=1)
    media_worker = probes.start_worker("media", concurrency=1)
    eventually(
        lambda: len(psutil.Process(media_worker.pid).children()) > 0, what="the child process"
    )
    assert list_nice_values(mail_worker) == {0}
    assert list_nice_values(media_worker) == {5}
