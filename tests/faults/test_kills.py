"""Tests that no acknowledged work is lost when a program of a stack is killed.

`make test` kills each program once, or many times with `SIZE=full`.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest

from core.ids import random_hash_id
from core.queues import Queue
from devstack.harness.embedded_services import Services, embedded_services
from devstack.harness.free_ports import free_port
from devstack.harness.opening import open_stack
from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack
from devstack.supervisor.programs import is_responding
from models import BulkActionKind, Job
from services.accounts import accounts
from services.privacy import erasure
from tests.support.credits.charging import CreditAccounts
from tests.support.credits.credits import consume
from tests.support.images.uploads import upload
from tests.support.imports.importing import ImportRunner
from tests.support.imports.killed_imports import prepare_import, require_exact
from tests.support.lists.bulk_actions import BulkActions
from tests.support.lists.subscribers import insert_members
from tests.support.people import traces as lives
from tests.support.probe.bench import Bench, make_bench
from tests.support.probe.kind import PROBES
from tests.support.sizes import sized
from tests.support.stack.held_rows import await_waiter, uncommitted
from tests.support.stack.load import repeating
from tests.support.stack.programs import TEST_PROGRAMS
from tests.support.stack.signals import kill_with_children

pytestmark = pytest.mark.stack

HEALTHY_WITHIN = 60.0
ROWS = sized(6_000, 200_000)


@dataclass
class Spenders:
    """Callers who repeatedly charge one account, and the responses that the callers received.

    Attributes:
        acknowledged: maps each successful charge to the balance in its response.
        unsure: the charges whose responses don't tell whether the charges succeeded.
        strange: unexpected responses and broken connections.
    """

    bank: CreditAccounts
    owner: Owner
    stop: threading.Event = field(default_factory=threading.Event)
    acknowledged: dict[str, Decimal] = field(default_factory=dict)
    unsure: set[str] = field(default_factory=set)
    strange: list[str] = field(default_factory=list)

    def have_charged(self, count: int) -> bool:
        return len(self.acknowledged) > count

    def run(self, number: int) -> None:
        with self.bank.stack.client(self.owner.key) as client:
            count = 0
            while not self.stop.is_set():
                count += 1
                self._charge(client, f"{number}-{count}")

    def _charge(self, client: httpx2.Client, name: str) -> None:
        # Half of the callers retry with an idempotency key until the charge succeeds.
        key = f"charge-of-spender-{name}" if int(name[-1]) % 2 else None
        while True:
            try:
                reply = consume(client, "0.0007", name, key=key)
            except httpx2.HTTPError as error:
                self.strange.append(repr(error))
                return
            if reply.status_code == 200:
                entry = json.loads(reply.text, parse_float=Decimal)["data"]
                self.acknowledged[name] = entry["balance_after"]
                self.unsure.discard(name)
                return
            self.unsure.add(name)
            if reply.status_code not in {409, 503}:
                self.strange.append(reply.text)
                return
            if key is None or self.stop.wait(0.05):
                return


@dataclass(frozen=True)
class Site:
    """A stack with its own services, so that killing them doesn't affect other tests."""

    bench: Bench
    services: Services

    @property
    def stack(self) -> Stack:
        return self.bench.stack


@pytest.fixture(scope="module")
def own_services_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    home: Path = tmp_path_factory.mktemp("kills")
    port = free_port()
    with (
        embedded_services(home) as services,
        open_stack(services, home, "kills", 1, port, programs=TEST_PROGRAMS) as stack,
    ):
        bench = make_bench(stack)
        with stack.starting_together():
            stack.start_api()
            bench.start_worker(Queue.MEDIA, Queue.EXPORT, concurrency=1)
        yield Site(bench, services)


@pytest.mark.tier("fast")
def test_running_processes_reconnect_to_killed_postgres_redis_and_s3(
    own_services_stack: Site,
) -> None:
    owner = own_services_stack.stack.create_owner()
    for name in ("postgres", "valkey", "s3") * sized(1, 10):
        _restart_under_load(own_services_stack, owner, name)
        # No process of Pressroom was restarted.
        assert [running.process.poll() for running in own_services_stack.stack.processes] == [
            None,
            None,
        ]


def _restart_under_load(own_services_stack: Site, owner: Owner, name: str) -> None:
    bench = own_services_stack.bench
    stack = own_services_stack.stack
    probe = PROBES[Queue.EXPORT]
    with _load(stack, owner):
        jobs = [bench.enqueue(kind=probe, sleep=0.5) for _ in range(3)]
        # Kill the service while the worker runs a job. While Redis is down, the worker can't
        # acknowledge the job's message.
        bench.started(jobs[0])
        own_services_stack.services.restart(name)
    eventually(
        lambda: is_responding(stack.api_port, "/readyz"), within=HEALTHY_WITHIN, what="/readyz"
    )
    eventually(
        lambda: upload(stack, owner, wait=5).status_code == 200,
        within=HEALTHY_WITHIN,
        what="an upload",
    )
    for job_id in [*jobs, bench.enqueue(kind=probe)]:
        assert bench.finished(job_id, within=HEALTHY_WITHIN).status == "succeeded"
        assert bench.effects(job_id) == 1


@contextmanager
def _load(stack: Stack, owner: Owner) -> Iterator[None]:
    """Upload pictures during the block, and check that each response is an expected one."""
    unexpected: list[str] = []

    def call() -> None:
        try:
            reply = upload(stack, owner, wait=2)
        except httpx2.HTTPError as error:
            unexpected.append(repr(error))
            return
        if reply.status_code not in {200, 202, 503}:
            unexpected.append(reply.text)

    with repeating(call, pause=0.05):
        time.sleep(0.2)
        yield
    assert unexpected == []


@pytest.mark.tier("fast")
def test_acknowledged_charges_survive_killed_database(own_services_stack: Site) -> None:
    bank = CreditAccounts(own_services_stack.stack)
    owner = bank.create_holder("1000000")
    spenders = Spenders(bank, owner)
    threads = [threading.Thread(target=spenders.run, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(sized(3, 100, few=1)):
            charge_count = len(spenders.acknowledged)
            eventually(
                partial(spenders.have_charged, charge_count + 20),
                within=HEALTHY_WITHIN,
                what="charges after the last kill",
            )
            own_services_stack.services.restart("postgres")
            eventually(
                lambda: is_responding(own_services_stack.stack.api_port, "/readyz"),
                within=HEALTHY_WITHIN,
                what="/readyz",
            )
    finally:
        spenders.stop.set()
        for thread in threads:
            thread.join()
    assert spenders.strange == []
    _require_all_charges(bank, owner, spenders)


def _require_all_charges(bank: CreditAccounts, owner: Owner, spenders: Spenders) -> None:
    charges = bank.entries(owner)[1:]
    balances = {str(source): balance for _, _, balance, source in charges}
    # Each charge was made only once, although some calls were repeated.
    assert len(balances) == len(charges)
    assert {name: balances.get(name) for name in spenders.acknowledged} == spenders.acknowledged
    # Each charge must belong to a successful call, or to a call with the response status 503, which
    # doesn't tell whether the charge was made.
    assert set(balances) <= set(spenders.acknowledged) | spenders.unsure
    assert [seq for seq, *_ in charges] == list(range(2, len(charges) + 2))
    assert bank.balance(owner) == 1_000_000 - Decimal("0.0007") * len(charges)
    bank.require_clean_books()


@dataclass(frozen=True)
class Work:
    """A job that writes to the database in batches.

    Attributes:
        stops: where the test stops the job and kills the worker. To stop the job, the test locks a
            row, for which the job then waits. Each stop consists of the SQL statement that locks
            the row, the parameters of this statement, and a text that occurs in the SQL statement
            with which the job waits for the row.
        check: asserts that the ended job has done everything exactly once.
    """

    job_id: int
    queue: Queue
    stops: list[tuple[str, tuple[Any, ...], str]]
    check: Callable[[Job], None]


def begin_import(imports: ImportRunner) -> Work:
    owner = imports.stack.create_owner()
    list_id = imports.new_list(owner)
    # The import has two chunks. The test kills the worker during the import of the second chunk.
    prepared_import = prepare_import(imports, list_id, 10_100)
    job_id = imports.begin(owner, list_id, prepared_import.file())
    [last_address, *_] = prepared_import.rows[-1]
    person = "INSERT INTO users (id, email) VALUES (1, %s)", (last_address,), "INSERT INTO users"
    # The last SQL statement of the import stores the number of imported rows.
    import_id = imports.of_job(job_id).id
    counts = "SELECT 1 FROM imports WHERE id = %s FOR NO KEY UPDATE", (import_id,), "UPDATE imports"

    def check(_: Job) -> None:
        require_exact(imports, list_id, imports.of_job(job_id), prepared_import)

    return Work(job_id, Queue.BULK, [person, counts], check)


def begin_bulk_action(imports: ImportRunner) -> Work:
    bulk = BulkActions(imports, owner := imports.stack.create_owner(), imports.new_list(owner))
    insert_members(
        imports.stack, bulk.list_id, [f"{n}.{bulk.list_id}@example.com" for n in range(ROWS)]
    )

    def check(job: Job) -> None:
        assert job.result is not None
        assert (job.result["matched"], job.result["changed"]) == (ROWS, ROWS)
        assert set(bulk.statuses()) == {"removed"}
        event_counts = imports.stack.query(
            "SELECT count(*), count(DISTINCT user_id) FROM subscription_events WHERE list_id = %s",
            bulk.list_id,
        )
        assert event_counts == [(ROWS, ROWS)]

    row = _lock_middle_row(imports.stack, "subscriptions", "list_id", bulk.list_id)
    return Work(bulk.begin(BulkActionKind.REMOVE), Queue.BULK, [row], check)


def begin_undo_job(imports: ImportRunner) -> Work:
    bulk = BulkActions(imports, owner := imports.stack.create_owner(), imports.new_list(owner))
    insert_members(
        imports.stack, bulk.list_id, [f"{n}.{bulk.list_id}@example.com" for n in range(ROWS)]
    )
    before = bulk.records()
    bulk_id = bulk.do(BulkActionKind.REMOVE)["bulk_id"]

    def check(job: Job) -> None:
        assert job.result == {"bulk_id": bulk_id, "undone": ROWS, "kept": 0}
        assert bulk.records() == before

    row = _lock_middle_row(imports.stack, "subscriptions", "list_id", bulk.list_id)
    return Work(bulk.begin_undo(bulk_id), Queue.BULK, [row], check)


def begin_erasure_job(imports: ImportRunner) -> Work:
    stack = imports.stack
    address = f"{random_hash_id()}@example.com"
    with imports.resources.unit_of_work() as uow:
        user_id = accounts.create_user(uow, email=address, name="Ada").id
    owner = stack.create_owner()
    list_id = imports.new_list(owner)
    lives.insert_rows(stack, list_id=list_id, user_id=user_id, other_id=owner.user_id, rows=ROWS)

    def check(job: Job) -> None:
        assert job.result is not None
        assert (job.result["attachments"], job.result["jobs"]) == (ROWS, ROWS)
        assert lives.count_unerased_rows(stack, user_id) == {}
        [(counts,)] = stack.query("SELECT counts FROM erasures WHERE user_id = %s", user_id)
        assert isinstance(counts, dict)
        assert (counts["events"], counts["acts"], counts["idempotency"]) == (ROWS, ROWS, ROWS)

    rows = [
        _lock_middle_row(stack, "attachments", "user_id", user_id),
        _lock_middle_row(stack, "subscription_events", "actor_id", user_id),
    ]
    return Work(erasure.begin_erasure(imports.resources, address), Queue.MAINTENANCE, rows, check)


def _lock_middle_row(
    stack: Stack, table: str, column: str, value: int
) -> tuple[str, tuple[Any, ...], str]:
    """Return an element of ``Work.stops`` that stops a job halfway.

    The element locks the middle one of the rows of ``table`` in which ``column`` equals ``value``.
    """
    condition = f"WHERE {column} = %s ORDER BY id OFFSET {ROWS // 2} LIMIT 1"
    [(row_id,)] = stack.query(f"SELECT id FROM {table} {condition}", value)
    return f"SELECT 1 FROM {table} WHERE id = %s FOR UPDATE", (row_id,), table


@pytest.mark.parametrize(
    "begin",
    [
        pytest.param(begin_import, marks=pytest.mark.tier("fast")),
        begin_bulk_action,
        begin_undo_job,
        begin_erasure_job,
    ],
)
def test_job_of_killed_worker_is_resumed_by_the_next_worker_and_succeeds(
    own_services_stack: Site, begin: Callable[[ImportRunner], Work]
) -> None:
    stack = own_services_stack.stack
    importing = ImportRunner(own_services_stack.stack)
    work = begin(importing)
    for statement, values, words in work.stops:
        worker = stack.start_worker(work.queue, concurrency=1)
        with uncommitted(stack, statement, *values):
            await_waiter(stack, words)
            kill_with_children(worker)
        stack.processes.remove(worker)
    worker = stack.start_worker(work.queue, concurrency=1)
    job = importing.ended(work.job_id, within=sized(90, 3_000))
    kill_with_children(worker)
    stack.processes.remove(worker)
    assert (job.status, job.error) == ("succeeded", None)
    work.check(job)
