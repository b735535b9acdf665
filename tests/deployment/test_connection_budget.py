"""Tests that processes open no more database connections than docs/day-two.md states."""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import httpx2
import psycopg2
import pytest

from api.limits.bulkheads import SINGLE_STATEMENTS, TRANSACTION_THREADS
from core.queues import Queue
from devstack.harness.polling import eventually
from devstack.harness.running import Running
from devstack.harness.stack import Stack
from storage.database import Database, Statement, open_database
from tests.support.documents.markdown import ROOT
from tests.support.images.pictures import photo
from tests.support.imports.bulk import build_address_file, build_addresses
from tests.support.lists.people_on_lists import new_list
from tests.support.stack.load import repeating
from workers.context import count_connections
from workers.serving import Serving, plan_serving

IO_BOUND_QUEUES = [
    Queue.REQUEST,
    Queue.PHOTOS,
    Queue.MONEY,
    Queue.MAIL,
    Queue.WEBHOOKS,
    Queue.MAINTENANCE,
]
CPU_BOUND_QUEUES = [Queue.MEDIA, Queue.EXPORT, Queue.BULK]
# How long a test locks a table. LOCK_SECONDS is shorter than the lock timeout, so that no statement
# fails while it waits for the table.
LOCK_SECONDS = 2.0
CONCURRENT_CALLS = 60


def documented_counts(process: str) -> list[int]:
    """Return the connection counts that docs/day-two.md states for a type of process."""
    text = (ROOT / "docs" / "day-two.md").read_text()
    row = re.search(rf"^\| {re.escape(process)} \| (.+) \|$", text, re.MULTILINE)
    assert row, f"day-two.md doesn't count the connections of {process}"
    return [int(number) for number in re.findall(r"[0-9]+", row[1])]


# The types of processes in the table of connection counts in docs/day-two.md.
API = "an API process"
IO_BOUND_WORKER = "a worker of `request`, `photos`, `money`, `mail`, `webhooks` and `maintenance`"
SINGLE_QUEUE_WORKER = "a worker that serves only `request` or only `photos`"
MEDIA_WORKER = "a worker of `media`"
FILE_WORKER = "a worker of `export` and `bulk`"


def max_connections_of_pool_worker(serves: Serving) -> int:
    """Return the maximum number of connections of a worker that runs its jobs in a process pool.

    The worker's main process needs one connection to look for lost jobs and due maintenance.
    """
    return 1 + count_connections(serves) * serves.max_concurrent_jobs


def test_documented_connection_counts_match_the_configured_pools() -> None:
    assert documented_counts(API) == [TRANSACTION_THREADS + SINGLE_STATEMENTS]
    assert documented_counts(IO_BOUND_WORKER) == [
        count_connections(plan_serving(IO_BOUND_QUEUES)) + 1
    ]
    for queue in (Queue.REQUEST, Queue.PHOTOS):
        assert documented_counts(SINGLE_QUEUE_WORKER) == [
            count_connections(plan_serving([queue])) + 1
        ]
    two_cores = Serving(plan_serving(CPU_BOUND_QUEUES).pool, {Queue.MEDIA: 2})
    assert documented_counts(MEDIA_WORKER) == [
        1,
        count_connections(two_cores),
        max_connections_of_pool_worker(two_cores),
    ]
    assert documented_counts(FILE_WORKER) == [
        max_connections_of_pool_worker(plan_serving([Queue.EXPORT, Queue.BULK]))
    ]


@dataclass
class ConnectionPeaks:
    """Measures the maximum number of simultaneous database connections per application name."""

    stack: Stack
    peaks: Counter[str] = field(default_factory=Counter)

    def measuring(self) -> AbstractContextManager[None]:
        return repeating(self._measure, pause=0.02)

    def _measure(self) -> None:
        rows = self.stack.query(
            "SELECT application_name, count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() GROUP BY application_name"
        )
        self.peaks |= Counter({str(name): int(str(count)) for name, count in rows})


@contextmanager
def locked(stack: Stack, *tables: str) -> Iterator[None]:
    """Lock tables during the block, so that calls wait and keep their database connections."""
    with closing(psycopg2.connect(stack.owner_url)) as connection:
        connection.cursor().execute(f"LOCK TABLE {', '.join(tables)} IN ACCESS EXCLUSIVE MODE")
        began_at = time.monotonic()
        yield
        time.sleep(max(LOCK_SECONDS - (time.monotonic() - began_at), 0))


def submit_all(calls: Iterable[Callable[[], object]]) -> ThreadPoolExecutor:
    threads = ThreadPoolExecutor(CONCURRENT_CALLS)
    for call in calls:
        threads.submit(call)
    return threads


@pytest.fixture(scope="module")
def started_api(empty_stack: Stack) -> None:
    """Start an API and the sandbox on the test stack of the fixture `empty_stack`."""
    empty_stack.start_sandbox()
    empty_stack.start_api()


@pytest.fixture
def parallel_client(empty_stack: Stack, started_api: None) -> Iterator[httpx2.Client]:
    headers = {"Authorization": f"Bearer {empty_stack.create_owner().key}"}
    limits = httpx2.Limits(max_connections=CONCURRENT_CALLS)
    with httpx2.Client(
        base_url=empty_stack.api_url, headers=headers, timeout=60, limits=limits, verify=False
    ) as client:
        yield client


@pytest.mark.tier("processes")
def test_api_under_load_opens_no_more_connections_than_documented(
    empty_stack: Stack, parallel_client: httpx2.Client
) -> None:
    charge = {"amount_credit": 1, "source_id": "bare"}
    picture = {"file": ("photo.jpg", photo(64, 48))}
    list_id = new_list(parallel_client)
    single_statement_calls = [
        partial(parallel_client.post, "/auxilia/credits/consume", json=charge),
        partial(parallel_client.get, "/auxilia/credits/balance"),
    ]
    transaction_calls = [
        partial(parallel_client.get, "/lists"),
        partial(parallel_client.get, "/jobs"),
        partial(parallel_client.get, "/attachments"),
        partial(parallel_client.get, f"/lists/{list_id}/subscriptions"),
        partial(parallel_client.post, f"/subscriptions/{list_id}", json={"email": "a@example.com"}),
        partial(parallel_client.delete, f"/subscriptions/{list_id}"),
        partial(parallel_client.post, "/attachments", files=picture, headers={"Prefer": "wait=0"}),
    ]
    connections = ConnectionPeaks(empty_stack)
    with connections.measuring():
        # Alternate between calls that use single statements and calls that use transactions, so
        # that the database connections for both are open at the same time.
        for calls, tables in (
            (single_statement_calls * 30, ["credit_accounts"]),
            (transaction_calls * 12, ["lists", "jobs", "attachments", "subscriptions"]),
            (single_statement_calls * 30, ["credit_accounts"]),
        ):
            with locked(empty_stack, *tables):
                threads = submit_all(calls)
            threads.shutdown()
    [max_connections] = documented_counts(API)
    assert max_connections / 3 < connections.peaks["pressroom-api"] <= max_connections


@pytest.fixture
def start_queues(empty_stack: Stack, tmp_path: Path) -> Iterator[Callable[[list[Queue]], Running]]:
    """A function that starts a worker with the default job limit of each queue."""
    workers = []

    def start(queues: list[Queue]) -> Running:
        ready_file = tmp_path / f"{queues[0]}.ready"
        running = empty_stack.start(
            f"bare-{queues[0]}",
            "worker",
            *(word for queue in queues for word in ("--queue", queue)),
            ready=ready_file.exists,
            environment={"PRESSROOM_READY_FILE": str(ready_file)},
        )
        workers.append(running)
        return running

    yield start
    for running in workers:
        running.stop()
        empty_stack.processes.remove(running)


def peak_of_workers(connections: ConnectionPeaks, queue: Queue) -> int:
    """Return the peak number of connections of the workers that serve a queue."""
    return sum(
        number
        for name, number in connections.peaks.items()
        if name.startswith(f"pressroom-worker-{queue}")
    )


def have_jobs_ended(stack: Stack, queues: list[Queue]) -> bool:
    unfinished = "SELECT 1 FROM jobs WHERE finished_at IS NULL AND queue = ANY(%s) LIMIT 1"
    return not stack.query(unfinished, [queue.value for queue in queues])


@pytest.mark.tier("processes")
def test_io_bound_worker_under_load_opens_no_more_connections_than_documented(
    empty_stack: Stack,
    parallel_client: httpx2.Client,
    start_queues: Callable[[list[Queue]], Running],
) -> None:
    list_id = new_list(parallel_client, confirm_required=True)
    start_queues(IO_BOUND_QUEUES)
    connections = ConnectionPeaks(empty_stack)
    with connections.measuring():
        for number in range(12):
            email = f"mailed{number}@example.com"
            parallel_client.post(f"/subscriptions/{list_id}", json={"email": email})
        with locked(empty_stack, "jobs"):
            pass
        eventually(
            lambda: have_jobs_ended(empty_stack, IO_BOUND_QUEUES), within=60, what="the mails"
        )
    [max_connections] = documented_counts(IO_BOUND_WORKER)
    assert (
        1
        < peak_of_workers(connections, Queue.REQUEST) + connections.peaks["pressroom-sweep"]
        <= max_connections
    )


@pytest.mark.tier("processes")
def test_cpu_bound_worker_under_load_opens_no_more_connections_than_documented(
    empty_stack: Stack,
    parallel_client: httpx2.Client,
    start_queues: Callable[[list[Queue]], Running],
) -> None:
    list_id = new_list(parallel_client)
    picture = {"file": ("photo.jpg", photo(640, 480))}
    start_queues(CPU_BOUND_QUEUES)
    connections = ConnectionPeaks(empty_stack)
    with connections.measuring():
        calls = [partial(parallel_client.post, "/attachments", files=picture) for _ in range(8)]
        for _ in range(3):
            file = {"file": ("members.csv", build_address_file(*build_addresses(2_000)))}
            calls.append(partial(parallel_client.post, f"/lists/{list_id}/imports", files=file))
            calls.append(
                partial(parallel_client.post, f"/lists/{list_id}/exports", json={"kind": "members"})
            )
        submit_all(calls).shutdown()
        eventually(
            lambda: have_jobs_ended(empty_stack, CPU_BOUND_QUEUES), within=60, what="the jobs"
        )
    max_connections = max_connections_of_pool_worker(plan_serving(CPU_BOUND_QUEUES))
    peak = peak_of_workers(connections, Queue.EXPORT) + connections.peaks["pressroom-sweep"]
    assert 1 < peak <= max_connections


@pytest.fixture
def shared_database(empty_stack: Stack) -> Iterator[Database]:
    """A database client with one connection for transactions and one for single statements."""
    name = f"pressroom-shared-{time.monotonic_ns()}"
    opened = open_database(
        empty_stack.settings(), pool_size=1, application_name=name, single_statements=1
    )
    yield opened
    opened.close()


def test_single_statements_borrow_a_transaction_connection_if_their_own_is_busy(
    empty_stack: Stack, shared_database: Database
) -> None:
    slow_statement = Statement("SELECT current_setting('application_name'), pg_sleep(0.3)")
    with ThreadPoolExecutor(4) as threads:
        results = [threads.submit(shared_database.rows, slow_statement) for _ in range(4)]
        [name] = {each.result()[0][0] for each in results}
    count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
    assert empty_stack.query(count, name) == [(2,)]
    # A statement outside of a transaction turns on autocommit for the connection from the pool.
    # After the connection is returned to the pool, autocommit is off again.
    with shared_database.engine.connect() as connection:
        connection.exec_driver_sql("CREATE TEMP TABLE seen ON COMMIT DELETE ROWS AS SELECT 1")
        assert connection.exec_driver_sql("SELECT count(*) FROM seen").scalar() == 1
        connection.rollback()
    with shared_database.engine.connect() as connection:
        connection.exec_driver_sql("CREATE TEMP TABLE seen (id int)")
