"""Tests that calls end while Postgres hangs, and that no process needs a restart afterwards."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from decimal import Decimal
from functools import partial
from itertools import count
from pathlib import Path

import httpx2
import psutil
import pytest
from sqlalchemy import text

from devstack.harness.embedded_services import Services
from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from storage.replica_reads import open_snapshot
from tests.support.credits.charging import CreditAccounts
from tests.support.credits.credits import BALANCE, consume
from tests.support.stack.frozen_processes import frozen
from tests.support.stack.load import call_at_once, repeating

pytestmark = pytest.mark.tier("faults")

# The API must end each call within 15 seconds. The test allows more on a crowded machine.
MAX_CALL_SECONDS = 20.0
HANG_SECONDS = 40.0
_COUNT_SWEEPS = """
    SELECT count(*) FROM pg_stat_activity
    WHERE application_name = 'pressroom-sweep' AND datname = current_database()
"""


@contextmanager
def hung_database(services: Services) -> Iterator[None]:
    """Stop all processes of Postgres until the block ends."""
    server = psutil.Process(services.pids["postgres"])
    with ExitStack() as resumed:
        resumed.enter_context(frozen(server.pid))
        for child in server.children(recursive=True):
            resumed.enter_context(frozen(child.pid))
        yield


@pytest.fixture(scope="module")
def bank(make_stack: Callable[[str], Stack]) -> CreditAccounts:
    stack = make_stack("hung")
    stack.start_api()
    stack.start_worker("maintenance", "mail", concurrency=2)
    stack.start_worker("media", concurrency=1)
    return CreditAccounts(stack)


def test_calls_end_while_the_database_hangs_and_repeated_charges_count_once(
    bank: CreditAccounts, services: Services
) -> None:
    stack = bank.stack
    owner = bank.create_holder("10000")
    eventually(lambda: stack.query(_COUNT_SWEEPS) == [(2,)], what="the workers' connections")
    numbers = count()
    replies: dict[str, list[tuple[int, float]]] = {}

    def charge(client: httpx2.Client) -> None:
        key = f"charge-of-a-client-{next(numbers)}"
        began_at = time.monotonic()
        reply = consume(client, key=key)
        replies.setdefault(key, []).append((reply.status_code, time.monotonic() - began_at))
        if reply.status_code == 503:
            time.sleep(float(reply.headers["retry-after"]))

    with stack.client(owner.key) as client, stack.client() as stranger:
        with repeating(*[partial(charge, client)] * 6, pause=0.01):
            eventually(lambda: len(replies) > 50, what="successful charges")
            with hung_database(services):
                hung_at = time.monotonic()
                results = call_at_once(4, partial(_time_call, client, BALANCE))
                assert {status for status, _ in results} == {503}
                assert max(seconds for _, seconds in results) < MAX_CALL_SECONDS
                assert stranger.get("/readyz").status_code == 503
                eventually(
                    lambda: _all_noticed(stack), within=60, what="the reports of all processes"
                )
                # Later calls don't wait until a connection times out.
                status, seconds = _time_call(client, "/lists")
                assert status == 503
                assert seconds < 5
                time.sleep(max(hung_at + HANG_SECONDS - time.monotonic(), 0))
            eventually(lambda: stranger.get("/readyz").status_code == 200, what="readiness")
            charged = len(replies)
            eventually(lambda: len(replies) > charged + 50, what="charges after the hang")
        times = [seconds for attempts in replies.values() for _, seconds in attempts]
        assert max(times) < MAX_CALL_SECONDS
        statuses = {status for attempts in replies.values() for status, _ in attempts}
        assert statuses == {200, 503}
        for key in replies:
            assert consume(client, key=key).status_code == 200
    assert bank.balance(owner) == Decimal(10_000 - len(replies))
    bank.require_clean_books()
    assert all(each.process.poll() is None for each in stack.processes)
    api_log = next(each.log for each in stack.processes if each.name == "api")
    changes = [
        (line["event"], line["level"])
        for line in _read_lines(api_log)
        if line.get("dependency") == "database"
    ]
    assert changes == [("dependency.unavailable", "error"), ("dependency.available", "warning")]


def test_long_statement_of_a_working_database_is_not_ended(bank: CreditAccounts) -> None:
    with open_snapshot(bank.stack.resources.database.engine, timedelta(minutes=1)) as snapshot:
        assert snapshot.execute(text("SELECT pg_sleep(15), 17")).one()[1] == 17


def _time_call(client: httpx2.Client, path: str) -> tuple[int, float]:
    began_at = time.monotonic()
    return client.get(path).status_code, time.monotonic() - began_at


def _all_noticed(stack: Stack) -> bool:
    return all(
        any(line["event"] == "database.hung" for line in _read_lines(each.log))
        for each in stack.processes
    )


def _read_lines(log: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
