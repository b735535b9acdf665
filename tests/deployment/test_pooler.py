"""Tests that Pressroom works with PgBouncer between its processes and the database."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager

import httpx2
import psycopg2
import psycopg2.extensions
import pytest
from pydantic import SecretStr

from devstack.harness.embedded_services import Services
from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack
from services.subscriptions.imports.chunks import staging
from storage.database import SESSION_DEFAULTS, Statement, open_database
from tests.support.credits.credits import balance, consume, grant
from tests.support.deployment.pooler import RunningPooler, running_pooler
from tests.support.http.replies import data, problem
from tests.support.images.uploads import upload
from tests.support.imports.bulk import (
    add,
    build_address_file,
    build_addresses,
    export_rows,
    import_members_file,
)
from tests.support.lists.people_on_lists import new_list

# Fewer database connections than Pressroom's processes would open without PgBouncer.
SERVER_CONNECTIONS = 4
CALLERS = 12
LOCK_TIMEOUT_SECONDS = 3.0
MAX_CALL_SECONDS = 20.0


@pytest.fixture(scope="module")
def pooled_stack(
    make_stack: Callable[[str], Stack], services: Services
) -> Iterator[tuple[Stack, RunningPooler]]:
    """A test stack that uses its database only through PgBouncer, and the PgBouncer process."""
    stack = make_stack("pooled")
    with running_pooler(services, stack, size=SERVER_CONNECTIONS) as pooler:
        stack.environment["PRESSROOM_DATABASE_URL"] = pooler.url
        stack.start_api()
        stack.start_worker("media", "bulk", "export", concurrency=1)
        yield stack, pooler
        stack.stop()


@pytest.fixture
def funded_owner(pooled_stack: tuple[Stack, RunningPooler]) -> Owner:
    stack, _ = pooled_stack
    owner = stack.create_owner()
    grant(stack, owner.user_id, "1000")
    return owner


def count_connections(stack: Stack) -> int:
    """Count the database connections of Pressroom's processes, except the test's connections."""
    [(count,)] = stack.query(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name LIKE 'pressroom-%%' AND application_name <> 'pressroom-tests'"
    )
    return int(str(count))


def test_imports_uploads_and_charges_work_through_pgbouncer(
    pooled_stack: tuple[Stack, RunningPooler], funded_owner: Owner
) -> None:
    stack, pooler = pooled_stack

    def charge(_: int) -> int:
        with stack.client(funded_owner.key) as own_client:
            return consume(own_client).status_code

    def work(client: httpx2.Client) -> None:
        list_id = new_list(client)
        file = build_address_file(*build_addresses(500))
        assert import_members_file(client, list_id, file)["added"] == 500
        added = add(client, list_id, *build_addresses(50), prefer="wait=30")
        assert data(added) == 50
        assert upload(stack, funded_owner).status_code == 200

    with ThreadPoolExecutor(CALLERS) as threads, stack.client(funded_owner.key) as client:
        charges = [threads.submit(charge, number) for number in range(200)]
        work(client)
        assert {each.result() for each in charges} == {200}
        assert 0 < count_connections(stack) <= pooler.size
        assert balance(client) == 800


# Selects all state that a database session still has after a transaction, such as changed settings.
# The settings ``application_name`` and ``client_encoding`` are left out, because PgBouncer itself
# changes them.
LEFTOVER_STATE = """
    SELECT 'setting', name FROM pg_settings
    WHERE source = 'session' AND name NOT IN ('application_name', 'client_encoding')
    UNION ALL SELECT 'statement', name FROM pg_prepared_statements
    UNION ALL SELECT 'cursor', name FROM pg_cursors WHERE is_holdable
    UNION ALL SELECT 'channel', name FROM pg_listening_channels() AS name
    UNION ALL SELECT 'lock', objid::text FROM pg_locks
    WHERE pid = pg_backend_pid() AND locktype = 'advisory'
"""


@pytest.mark.tier("machines")
def test_pooled_session_is_returned_without_leftover_state(
    pooled_stack: tuple[Stack, RunningPooler], funded_owner: Owner
) -> None:
    stack, _ = pooled_stack
    with stack.client(funded_owner.key) as client:
        list_id = new_list(client)
        assert (
            import_members_file(client, list_id, build_address_file(*build_addresses(100)))["added"]
            == 100
        )
        assert export_rows(client, list_id) != []
        assert client.post(f"/subscriptions/{list_id}/no-challenge").status_code == 200
    with all_pooled_sessions(pooled_stack) as sessions:
        for session in sessions:
            session.execute(LEFTOVER_STATE)
            assert session.fetchall() == []


@contextmanager
def all_pooled_sessions(
    pooled_stack: tuple[Stack, RunningPooler],
) -> Iterator[list[psycopg2.extensions.cursor]]:
    """During the ``with`` block, keep a transaction open on each connection of the pool."""
    _, pooler = pooled_stack
    with ExitStack() as opened:
        connections = [
            opened.enter_context(closing(psycopg2.connect(pooler.url))) for _ in range(pooler.size)
        ]
        sessions = [connection.cursor() for connection in connections]
        for session in sessions:
            session.execute("SELECT 1")
        yield sessions
        for connection in connections:
            connection.commit()


@pytest.mark.tier("machines")
def test_statement_and_lock_timeouts_hold_behind_pgbouncer(
    pooled_stack: tuple[Stack, RunningPooler], funded_owner: Owner
) -> None:
    stack, pooler = pooled_stack
    url = SecretStr(pooler.url.replace("postgresql:", "postgresql+psycopg2:"))
    settings = stack.settings().model_copy(update={"database_url": url})
    with closing(open_database(settings, pool_size=1, application_name="limits")) as database:
        for name, value in SESSION_DEFAULTS.items():
            assert database.rows(Statement(f"SHOW {name}")) == [(value,)]
    with (
        closing(psycopg2.connect(stack.owner_url)) as connection,
        stack.client(funded_owner.key) as client,
    ):
        lock_account = "SELECT 1 FROM credit_accounts WHERE user_id = %s FOR UPDATE"
        connection.cursor().execute(lock_account, (funded_owner.user_id,))
        began_at = time.monotonic()
        problem(consume(client, key="0123456789abcdef"), 409, "idempotency.in_progress")
        assert LOCK_TIMEOUT_SECONDS <= time.monotonic() - began_at < MAX_CALL_SECONDS
    with stack.client(funded_owner.key) as client:
        assert consume(client, key="0123456789abcdef").status_code == 200


@pytest.mark.tier("machines")
def test_call_without_available_database_connection_gets_503_in_time(
    pooled_stack: tuple[Stack, RunningPooler], funded_owner: Owner
) -> None:
    stack, _ = pooled_stack
    with all_pooled_sessions(pooled_stack), stack.client(funded_owner.key) as client:
        began_at = time.monotonic()
        problem(consume(client), 503, "service.unavailable")
        assert time.monotonic() - began_at < MAX_CALL_SECONDS
    with stack.client(funded_owner.key) as client:
        assert consume(client).status_code == 200


@pytest.mark.tier("machines")
@pytest.mark.parametrize("killed_process", ["pool", "server"])
def test_processes_recover_after_pooler_or_database_is_killed(
    pooled_stack: tuple[Stack, RunningPooler],
    funded_owner: Owner,
    services: Services,
    killed_process: str,
) -> None:
    stack, pooler = pooled_stack
    with stack.client(funded_owner.key) as client:
        list_id = new_list(client)
        if killed_process == "pool":
            pooler.restart()
        else:
            services.restart("postgres")
        eventually(lambda: consume(client).status_code == 200, what="a charge")
        assert (
            import_members_file(client, list_id, build_address_file(*build_addresses(10)))["added"]
            == 10
        )


@pytest.mark.tier("machines")
def test_import_behind_pooler_ignores_temporary_tables_of_other_releases(
    pooled_stack: tuple[Stack, RunningPooler], funded_owner: Owner
) -> None:
    stack, _ = pooled_stack
    with all_pooled_sessions(pooled_stack) as sessions:
        for session in sessions:
            for name in ("staged", "staged_digests", "judged"):
                for table in (name, staging.name_table(name, "other columns")):
                    session.execute(f"CREATE TEMP TABLE IF NOT EXISTS {table} (other int)")
    with stack.client(funded_owner.key) as client:
        file = build_address_file(*build_addresses(10))
        assert import_members_file(client, new_list(client), file)["added"] == 10


@pytest.mark.tier("machines")
def test_migration_rejects_a_connection_pooler(pooled_stack: tuple[Stack, RunningPooler]) -> None:
    stack, pooler = pooled_stack
    for environment in ({"PRESSROOM_MIGRATION_DATABASE_URL": pooler.url}, {}):
        migrating = stack.start("migrates", "migrate", environment=environment)
        assert migrating.process.wait(60) == 1
        assert (
            "set PRESSROOM_MIGRATION_DATABASE_URL to the database server"
            in migrating.log.read_text()
        )
