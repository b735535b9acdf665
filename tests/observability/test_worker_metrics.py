import os
import signal
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest

from devstack.harness.free_ports import free_port
from devstack.harness.polling import eventually
from devstack.harness.running import Running
from devstack.harness.stack import Stack
from tests.support.http.replies import data, send
from tests.support.observability.scraping import Scrape, promtool, scrape, scrape_api

CONVERSIONS = {"queue": "media", "kind": "attachment.process"}


@pytest.fixture(scope="module")
def scraped_stack(make_stack: Callable[[str], Stack]) -> Stack:
    """A test stack with a sandbox and an API, but without workers.

    Each test starts the workers whose metrics the test reads.
    """
    stack = make_stack("scraped")
    stack.start_sandbox()
    stack.start_api()
    return stack


@pytest.fixture
def metrics_folder(tmp_path: Path) -> Path:
    """An empty folder in which a worker stores its metrics files."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    return folder


def start_worker(
    stack: Stack, metrics_folder: Path, *queues: str
) -> tuple[Running, Callable[[], Scrape]]:
    address = f"127.0.0.1:{free_port()}"
    environment = {"PRESSROOM_WORKER_METRICS_ADDRESS": address, "TMPDIR": str(metrics_folder)}
    worker = stack.start_worker(*queues, concurrency=2, **environment)
    return worker, lambda: scrape(f"http://{address}/metrics")


def upload(stack: Stack, key: str) -> None:
    with stack.client(key) as client:
        data(send(client, prefer="wait=60"))


def count_conversions(metrics: Scrape) -> float:
    return metrics.value("pressroom_jobs_ended_total", status="succeeded", **CONVERSIONS)


def test_worker_metrics_sum_the_jobs_of_all_pool_processes(
    scraped_stack: Stack, metrics_folder: Path
) -> None:
    worker, scrape_worker = start_worker(scraped_stack, metrics_folder, "media")
    key = scraped_stack.create_owner().key
    for _ in range(4):
        upload(scraped_stack, key)
    eventually(
        lambda: count_conversions(scrape_worker()) == 4, what="four conversions among the metrics"
    )
    metrics = scrape_worker()
    assert metrics.value("pressroom_job_attempts_total", **CONVERSIONS) == 4
    assert metrics.value("pressroom_job_waiting_seconds_count", **CONVERSIONS) == 4
    assert metrics.value("pressroom_job_running_seconds_count", **CONVERSIONS) == 4
    assert metrics.value("pressroom_conversion_seconds_count") == 4
    assert metrics.value("pressroom_s3_seconds_count") > 0
    assert metrics.value("pressroom_redis_seconds_count") > 0
    assert metrics.value("pressroom_database_connections_limit") >= 2
    assert metrics.value("process_resident_memory_bytes") > 0
    # No label contains the id of a process, because each new process would then add new metric
    # series.
    assert "pid" not in metrics.label_names()
    promtool("check", "metrics", given=metrics.text)
    assert worker.stop() == 0
    assert list(metrics_folder.glob("pressroom-metrics-*")) == []


@pytest.mark.tier("faults")
def test_metrics_of_killed_pool_processes_are_kept_without_leftover_files(
    scraped_stack: Stack, metrics_folder: Path
) -> None:
    worker, scrape_worker = start_worker(scraped_stack, metrics_folder, "media")
    key = scraped_stack.create_owner().key
    upload(scraped_stack, key)
    eventually(lambda: count_conversions(scrape_worker()) == 1, what="the first conversion")
    calls_before = scrape_worker().value("pressroom_s3_seconds_count")
    killed_pids = worker.children()
    for pid in killed_pids:
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: set(worker.children()).isdisjoint(killed_pids), what="new processes")
    upload(scraped_stack, key)
    eventually(lambda: count_conversions(scrape_worker()) == 2, what="the second conversion")
    assert scrape_worker().value("pressroom_s3_seconds_count") > calls_before
    # The metrics of all ended processes are in one file. Each running process has a metrics file of
    # its own.
    file_owners = {file.stem.rpartition("_")[2] for file in metrics_folder.rglob("*.db")}
    assert file_owners.isdisjoint(map(str, killed_pids))
    assert "ended" in file_owners
    assert worker.stop() == 0


def test_metrics_files_of_killed_worker_are_deleted_at_the_next_start(
    scraped_stack: Stack, metrics_folder: Path
) -> None:
    first_worker, _ = start_worker(scraped_stack, metrics_folder, "money")
    [old_folder] = metrics_folder.glob("pressroom-metrics-*")
    first_worker.kill()
    second_worker, _ = start_worker(scraped_stack, metrics_folder, "money")
    assert not old_folder.exists()
    assert len(list(metrics_folder.glob("pressroom-metrics-*"))) == 1
    assert second_worker.stop() == 0


def test_worker_starts_even_if_its_metrics_port_is_occupied(
    scraped_stack: Stack, metrics_folder: Path
) -> None:
    occupied_address = f"127.0.0.1:{scraped_stack.api_port}"
    worker = scraped_stack.start_worker(
        "mail", PRESSROOM_WORKER_METRICS_ADDRESS=occupied_address, TMPDIR=str(metrics_folder)
    )
    eventually(
        lambda: "metrics.not_served" in worker.log.read_text(), what="the warning in the log"
    )
    assert worker.stop() == 0


def test_worker_without_metrics_address_creates_no_metrics_files(
    scraped_stack: Stack, metrics_folder: Path
) -> None:
    worker = scraped_stack.start_worker("mail", TMPDIR=str(metrics_folder))
    assert list(metrics_folder.glob("pressroom-metrics-*")) == []
    assert worker.stop() == 0


def test_api_metrics_are_valid_and_count_errors_by_code(scraped_stack: Stack) -> None:
    assert httpx2.get(f"{scraped_stack.api_url}/metrics").status_code == 401
    metrics = scrape_api(scraped_stack)
    promtool("check", "metrics", given=metrics.text)
    assert metrics.value("pressroom_errors_total", code="auth.metrics_token") >= 1
