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
from tests.support.imports.bulk import addresses, of_addresses
from tests.support.lists.people_on_lists import new_list
from tests.support.stack.load import repeated
from workers.context import count_connections
from workers.serving import Serving, plan_serving

WAITING = [Queue.REQUEST, Queue.PHOTOS, Queue.MONEY, Queue.MAIL, Queue.WEBHOOKS, Queue.MAINTENANCE]
COMPUTING = [Queue.MEDIA, Queue.EXPORT, Queue.BULK]
# Less than what a statement waits for a lock.
HELD_SECONDS = 2.0
AT_ONCE = 60


def stated(process: str) -> list[int]:
    """The numbers in this process's row of the table."""
    text = (ROOT / "docs" / "day-two.md").read_text()
    row = re.search(rf"^\| {re.escape(process)} \| (.+) \|$", text, re.MULTILINE)
    assert row, f"day-two.md doesn't count the connections of {process}"
    return [int(number) for number in re.findall(r"[0-9]+", row[1])]


API = "an API process"
WAITS = "a worker of `request`, `photos`, `money`, `mail`, `webhooks` and `maintenance`"
ALONE = "a worker that serves only `request` or only `photos`"
CONVERTS = "a worker of `media`"
COMPUTES = "a worker of `export` and `bulk`"


def most_of_computing(serves: Serving) -> int:
    """Its main process sweeps, and each of its pool works."""
    return 1 + count_connections(serves) * serves.max_concurrent_jobs


def test_documented_connection_counts_match_the_configured_pools() -> None:
    assert stated(API) == [TRANSACTION_THREADS + SINGLE_STATEMENTS]
    assert stated(WAITS) == [count_connections(plan_serving(WAITING)) + 1]
    for queue in (Queue.REQUEST, Queue.PHOTOS):
        assert stated(ALONE) == [count_connections(plan_serving([queue])) + 1]
    two_cores = Serving(plan_serving(COMPUTING).pool, {Queue.MEDIA: 2})
    assert stated(CONVERTS) == [1, count_connections(two_cores), most_of_computing(two_cores)]
    assert stated(COMPUTES) == [most_of_computing(plan_serving([Queue.EXPORT, Queue.BULK]))]


@dataclass
class Count:
    """The most connections at a time that each application had."""

    stack: Stack
    most: Counter[str] = field(default_factory=Counter)

    def going_on(self) -> AbstractContextManager[None]:
        return repeated(self._look, pause=0.02)

    def _look(self) -> None:
        found = self.stack.query(
            "SELECT application_name, count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() GROUP BY application_name"
        )
        self.most |= Counter({str(name): int(str(count)) for name, count in found})


@contextmanager
def locked(stack: Stack, *tables: str) -> Iterator[None]:
    """Whoever needs these tables waits, and keeps the connection."""
    with closing(psycopg2.connect(stack.owner_url)) as connected:
        connected.cursor().execute(f"LOCK TABLE {', '.join(tables)} IN ACCESS EXCLUSIVE MODE")
        began = time.monotonic()
        yield
        time.sleep(max(HELD_SECONDS - (time.monotonic() - began), 0))


def at_once(calls: Iterable[Callable[[], object]]) -> ThreadPoolExecutor:
    threads = ThreadPoolExecutor(AT_ONCE)
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
    limits = httpx2.Limits(max_connections=AT_ONCE)
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
    singly = [
        partial(parallel_client.post, "/auxilia/credits/consume", json=charge),
        partial(parallel_client.get, "/auxilia/credits/balance"),
    ]
    in_transactions = [
        partial(parallel_client.get, "/lists"),
        partial(parallel_client.get, "/jobs"),
        partial(parallel_client.get, "/attachments"),
        partial(parallel_client.get, f"/lists/{list_id}/subscriptions"),
        partial(parallel_client.post, f"/subscriptions/{list_id}", json={"email": "a@example.com"}),
        partial(parallel_client.delete, f"/subscriptions/{list_id}"),
        partial(parallel_client.post, "/attachments", files=picture, headers={"Prefer": "wait=0"}),
    ]
    count = Count(empty_stack)
    with count.going_on():
        # First all that a statement by itself needs, then all that a transaction needs, and then
        # the other way round: what was opened for the one is still there for the other.
        for calls, tables in (
            (singly * 30, ["credit_accounts"]),
            (in_transactions * 12, ["lists", "jobs", "attachments", "subscriptions"]),
            (singly * 30, ["credit_accounts"]),
        ):
            with locked(empty_stack, *tables):
                threads = at_once(calls)
            threads.shutdown()
    [most] = stated(API)
    assert most / 3 < count.most["pressroom-api"] <= most


@pytest.fixture
def start_queues(empty_stack: Stack, tmp_path: Path) -> Iterator[Callable[[list[Queue]], Running]]:
    """Starts a worker as a deployment does, with each queue's own limit."""
    started = []

    def start(queues: list[Queue]) -> Running:
        mark = tmp_path / f"{queues[0]}.ready"
        running = empty_stack.start(
            f"bare-{queues[0]}",
            "worker",
            *(word for queue in queues for word in ("--queue", queue)),
            ready=mark.exists,
            environment={"PRESSROOM_READY_FILE": str(mark)},
        )
        started.append(running)
        return running

    yield start
    for running in started:
        running.stop()
        empty_stack.processes.remove(running)


def most_at(count: Count, queue: Queue) -> int:
    """Of the workers whose first queue, in the order of all queues, is this one."""
    return sum(
        number
        for name, number in count.most.items()
        if name.startswith(f"pressroom-worker-{queue}")
    )


def ended(stack: Stack, queues: list[Queue]) -> bool:
    unfinished = "SELECT 1 FROM jobs WHERE finished_at IS NULL AND queue = ANY(%s) LIMIT 1"
    return not stack.query(unfinished, [queue.value for queue in queues])


@pytest.mark.tier("processes")
def test_io_bound_worker_under_load_opens_no_more_connections_than_documented(
    empty_stack: Stack,
    parallel_client: httpx2.Client,
    start_queues: Callable[[list[Queue]], Running],
) -> None:
    list_id = new_list(parallel_client, confirm_required=True)
    start_queues(WAITING)
    count = Count(empty_stack)
    with count.going_on():
        for number in range(12):
            email = f"mailed{number}@example.com"
            parallel_client.post(f"/subscriptions/{list_id}", json={"email": email})
        with locked(empty_stack, "jobs"):
            pass
        eventually(lambda: ended(empty_stack, WAITING), within=60, what="the mails")
    [most] = stated(WAITS)
    assert 1 < most_at(count, Queue.REQUEST) + count.most["pressroom-sweep"] <= most


@pytest.mark.tier("processes")
def test_cpu_bound_worker_under_load_opens_no_more_connections_than_documented(
    empty_stack: Stack,
    parallel_client: httpx2.Client,
    start_queues: Callable[[list[Queue]], Running],
) -> None:
    list_id = new_list(parallel_client)
    picture = {"file": ("photo.jpg", photo(640, 480))}
    start_queues(COMPUTING)
    count = Count(empty_stack)
    with count.going_on():
        calls = [partial(parallel_client.post, "/attachments", files=picture) for _ in range(8)]
        for _ in range(3):
            file = {"file": ("members.csv", of_addresses(*addresses(2_000)))}
            calls.append(partial(parallel_client.post, f"/lists/{list_id}/imports", files=file))
            calls.append(
                partial(parallel_client.post, f"/lists/{list_id}/exports", json={"kind": "members"})
            )
        at_once(calls).shutdown()
        eventually(lambda: ended(empty_stack, COMPUTING), within=60, what="the jobs")
    most = most_of_computing(plan_serving(COMPUTING))
    assert 1 < most_at(count, Queue.EXPORT) + count.most["pressroom-sweep"] <= most


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
    slowly = Statement("SELECT current_setting('application_name'), pg_sleep(0.3)")
    with ThreadPoolExecutor(4) as threads:
        found = [threads.submit(shared_database.rows, slowly) for _ in range(4)]
        [name] = {each.result()[0][0] for each in found}
    count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
    assert empty_stack.query(count, name) == [(2,)]
    # It is none that commits by itself any more.
    with shared_database.engine.connect() as connection:
        connection.exec_driver_sql("CREATE TEMP TABLE seen ON COMMIT DELETE ROWS AS SELECT 1")
        assert connection.exec_driver_sql("SELECT count(*) FROM seen").scalar() == 1
        connection.rollback()
    with shared_database.engine.connect() as connection:
        connection.exec_driver_sql("CREATE TEMP TABLE seen (id int)")
