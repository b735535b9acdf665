"""Tests of how a process records requests with API keys: limits, outages and duplicates."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg2
import pytest
from prometheus_client import REGISTRY
from pydantic import SecretStr

from devstack.harness.proxy import Proxy, open_proxy
from devstack.harness.stack import Owner, Stack
from services.access.api_requests import (
    MAX_REQUESTS_PER_KEY,
    MAX_UNWRITTEN_REQUESTS,
    NewRequest,
    RequestLog,
)
from storage.database import Database, open_database

STORED_QUERY = "SELECT milliseconds FROM api_requests WHERE key_id = %s ORDER BY milliseconds"


@pytest.fixture
def proxy(stack: Stack) -> Iterator[Proxy]:
    with open_proxy(stack.settings().database_url.get_secret_value()) as proxy:
        yield proxy


@pytest.fixture
def database(stack: Stack, proxy: Proxy) -> Iterator[Database]:
    """A connection to the database through the fixture `proxy`, which can simulate an outage."""
    settings = stack.settings().model_copy(update={"database_url": SecretStr(proxy.url)})
    log_database = open_database(settings, pool_size=1, application_name="log", single_statements=2)
    with closing(log_database):
        yield log_database


def create_key_ids(stack: Stack, owner: Owner, count: int) -> list[int]:
    rows = stack.query(
        "INSERT INTO api_keys (user_id, name, secret_hmac, last_four)"
        " SELECT %s, 'log', sha256((random() || ' ' || n)::bytea), 'xxxx'"
        " FROM generate_series(1, %s) n RETURNING id",
        owner.user_id,
        count,
    )
    return [int(str(key_id)) for (key_id,) in rows]


@pytest.fixture
def key_id(stack: Stack, owner: Owner) -> int:
    [key_id] = create_key_ids(stack, owner, 1)
    return key_id


def record_requests(log: RequestLog, key_id: int, numbers: range) -> None:
    """Record one request for each number in ``numbers``.

    The request for the number ``n`` takes ``n`` milliseconds, and starts one second after the
    request for ``n - 1``.
    """
    start = time.time() - 100_000
    for number in numbers:
        log.record(NewRequest(key_id, start + number, "GET", "/lists", 200, None, "x", number))


def read_numbers(stack: Stack, key_id: int) -> list[int]:
    return [int(str(number)) for (number,) in stack.query(STORED_QUERY, key_id)]


def test_busy_api_key_keeps_only_its_last_1000_requests_in_memory_and_in_the_database(
    stack: Stack, database: Database, key_id: int
) -> None:
    log = RequestLog()
    limit = MAX_REQUESTS_PER_KEY
    for start in range(0, 4 * limit, limit // 2):
        record_requests(log, key_id, range(start, start + limit // 2))
        log.write_requests(database)
        assert len(read_numbers(stack, key_id)) < 2 * limit
    assert read_numbers(stack, key_id) == list(range(3 * limit, 4 * limit))
    # Record more requests in one batch than the database keeps per API key. Pressroom stores only
    # those requests of the batch that started last.
    record_requests(log, key_id, range(4 * limit, 7 * limit))
    log.write_requests(database)
    assert read_numbers(stack, key_id) == list(range(6 * limit, 7 * limit))


def test_two_processes_trim_the_requests_of_one_api_key_at_the_same_time(
    stack: Stack, database: Database, key_id: int
) -> None:
    def write(offset: int) -> None:
        log = RequestLog()
        for start in range(offset, offset + 5_000, 250):
            record_requests(log, key_id, range(start, start + 250))
            log.write_requests(database)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, (0, 10_000)))
    numbers = read_numbers(stack, key_id)
    assert MAX_REQUESTS_PER_KEY <= len(numbers) <= 3 * MAX_REQUESTS_PER_KEY
    # One process recorded the requests 0 to 4,999, and the other process the requests 10,000 to
    # 14,999. The latest 1,000 requests are still in the database.
    assert numbers[-MAX_REQUESTS_PER_KEY:] == list(range(14_000, 15_000))


def test_requests_during_a_database_outage_are_written_later_up_to_a_limit(
    stack: Stack, owner: Owner, proxy: Proxy, database: Database
) -> None:
    log = RequestLog()
    count = 600
    key_ids = create_key_ids(stack, owner, MAX_UNWRITTEN_REQUESTS // count + 2)
    before = REGISTRY.get_sample_value("pressroom_unrecorded_requests_total") or 0
    with proxy.misbehaving(Proxy.refuse):
        for key_id in key_ids:
            record_requests(log, key_id, range(count))
            with pytest.raises(psycopg2.OperationalError):
                log.write_requests(database)
    dropped_count = count * len(key_ids) - MAX_UNWRITTEN_REQUESTS
    assert (
        REGISTRY.get_sample_value("pressroom_unrecorded_requests_total") == before + dropped_count
    )
    log.write_requests(database)
    assert sum(len(read_numbers(stack, key_id)) for key_id in key_ids) == MAX_UNWRITTEN_REQUESTS
    # Pressroom has dropped requests during the outage, but must store new requests after the
    # outage.
    record_requests(log, key_ids[-1], range(count, count + 1))
    log.write_requests(database)
    assert read_numbers(stack, key_ids[-1])[-1] == count


@pytest.mark.parametrize("deliver", [True, False], ids=["written", "not written"])
def test_batch_whose_connection_breaks_is_stored_exactly_once(
    stack: Stack, proxy: Proxy, database: Database, key_id: int, *, deliver: bool
) -> None:
    log = RequestLog()
    record_requests(log, key_id, range(3))
    statement = b"INSERT INTO api_requests"
    proxy.cut_at(statement, after=statement, deliver=deliver)
    with pytest.raises(psycopg2.OperationalError):
        log.write_requests(database)
    assert read_numbers(stack, key_id) == ([0, 1, 2] if deliver else [])
    log.write_requests(database)
    assert read_numbers(stack, key_id) == [0, 1, 2]
