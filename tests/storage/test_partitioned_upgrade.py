"""A database of the time before partitions: its tables become the first ones, with their rows."""

import secrets
import threading
from collections.abc import Iterator
from contextlib import closing

import psycopg2
import psycopg2.extensions
import pytest
from alembic import command
from alembic.migration import MigrationContext
from alembic.operations import Operations
from psycopg2 import sql
from pydantic import SecretStr
from sqlalchemy import Engine, create_engine, text

from storage.migrations import online
from storage.migrations.run import configuration, differences, migrate
from tests.stack import Stack, eventually

BEFORE = "0024b"
TABLES = ("jobs", "subscription_events", "import_changes", "idempotency_records", "imports")
FILL = """
INSERT INTO users (id, email) SELECT n, n || '@example.com' FROM generate_series(1, 20) AS n;
INSERT INTO lists (id, user_id, slug, title) VALUES (1, 1, 'letter', 'Letter');
INSERT INTO jobs (kind, lane, user_id, on_behalf_of, status, finished_at)
    SELECT 'probe', 'bulk', n % 20 + 1, n % 20 + 1, 'succeeded', now() - n * interval '1 hour'
    FROM generate_series(1, 2000) AS n;
INSERT INTO jobs (kind, lane, user_id) SELECT 'probe', 'mail', n FROM generate_series(1, 5) AS n;
INSERT INTO idempotency_records (caller_id, route, key, fingerprint, job_id)
    SELECT 1, 'POST /', id::text, sha256('x'), id FROM jobs WHERE status = 'queued';
INSERT INTO subscription_events (list_id, user_id, action, actor, via, created_at)
    SELECT 1, n % 20 + 1, 'requested', 'stranger', 'challenge', now() - n * interval '1 day'
    FROM generate_series(1, 2000) AS n;
INSERT INTO imports (list_id, user_id, source, object_prefix, size, undo_job_id)
    SELECT 1, 1, 'file', n::text, 1, n FROM generate_series(1, 20) AS n;
INSERT INTO import_changes (import_id, subscription_id, activated, applied_at, status_before,
        type_before, type_after, updated_at_before)
    SELECT n % 20 + 1, n, true, now(), 'pending', 'free', 'free', now()
    FROM generate_series(1, 2000) AS n;
DELETE FROM jobs WHERE id = (SELECT max(id) FROM jobs);
"""
# As the release before writes and reads jobs.
CALLS = (
    (
        "INSERT INTO jobs (kind, lane, user_id, on_behalf_of, sends)"
        " VALUES ('probe', 'bulk', 7, 7, 1) RETURNING id"
    ),
    (
        "UPDATE jobs SET status = 'running', attempt = attempt + 1,"
        " lease_expires_at = now() + interval '5 seconds' WHERE id IN ("
        "   SELECT id FROM jobs WHERE status = 'queued' AND lane = 'bulk' AND send_after <= now()"
        "   ORDER BY send_after LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id"
    ),
    (
        "UPDATE jobs SET status = 'succeeded', finished_at = now(), lease_expires_at = NULL"
        " WHERE user_id = 7 AND status = 'running' RETURNING id"
    ),
    (
        "DELETE FROM jobs WHERE id IN ("
        "   SELECT id FROM jobs WHERE user_id = 7 AND finished_at IS NOT NULL ORDER BY id DESC"
        "   LIMIT 1) RETURNING id"
    ),
)


@pytest.fixture
def stack(idle_stack: Stack) -> Stack:
    return idle_stack


@pytest.fixture
def engine(stack: Stack) -> Iterator[Engine]:
    """A database of its own, at the revision before, with rows."""
    name = f"upgraded_{secrets.token_hex(4)}"
    server = stack.owner_url.rpartition("/")[0]
    with closing(psycopg2.connect(stack.owner_url)) as connected, connected.cursor() as cursor:
        connected.autocommit = True
        cursor.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        made = create_engine(f"{server}/{name}".replace("postgresql:", "postgresql+psycopg2:"))
        try:
            with made.connect() as connection:
                command.upgrade(configuration(connection), BEFORE)
                connection.rollback()
            with made.begin() as connection:
                connection.execute(text(FILL))
            yield made
        finally:
            made.dispose()
            drop = sql.SQL("DROP DATABASE {} WITH (FORCE)")
            cursor.execute(drop.format(sql.Identifier(name)))


def url_of(engine: Engine) -> str:
    return engine.url.render_as_string(hide_password=False)


def upgrade(stack: Stack, engine: Engine) -> None:
    url = SecretStr(url_of(engine))
    migrate(
        stack.settings().model_copy(update={"database_url": url, "migration_database_url": url})
    )


def rows(engine: Engine, statement: str) -> list[tuple[object, ...]]:
    with engine.begin() as connection:
        return [tuple(row) for row in connection.execute(text(statement))]


def columns(engine: Engine) -> dict[str, str]:
    query = (
        "SELECT string_agg(quote_ident(attname), ', ' ORDER BY attname) FROM pg_attribute"
        " WHERE attrelid = '{}'::regclass AND attnum > 0 AND NOT attisdropped"
    )
    return {table: str(rows(engine, query.format(table))[0][0]) for table in TABLES}


def contents(engine: Engine, of: dict[str, str]) -> dict[str, list[tuple[object, ...]]]:
    """The values of these columns."""
    query = "SELECT to_jsonb(t)::text FROM (SELECT {} FROM {}) AS t ORDER BY 1"
    return {table: rows(engine, query.format(of[table], table)) for table in TABLES}


def test_every_row_is_there_and_new_ones_follow(stack: Stack, engine: Engine) -> None:
    there = columns(engine)
    before = contents(engine, there)
    [(last,)] = rows(engine, "SELECT last_value FROM jobs_id_seq")
    upgrade(stack, engine)
    assert contents(engine, there) == before
    assert differences(engine) == []
    assert rows(engine, "SELECT count(*) FROM ONLY jobs") == [(0,)]
    with engine.begin() as connection:
        found = [connection.exec_driver_sql(call).scalar_one() for call in CALLS]
    assert isinstance(last, int)
    # Also after the newest job was deleted, whose id is not given a second time.
    assert set(found) == {last + 1}
    # Nothing is left of the way here, and each rule holds for the rows of before.
    left = (
        "SELECT conname FROM pg_constraint WHERE conrelid::regclass::text ~"
        " '^(jobs|subscription_events|import_changes)'"
        " AND (NOT convalidated OR conname LIKE '%first%')"
    )
    assert rows(engine, left) == []


def test_what_refers_to_people_and_imports_still_does(stack: Stack, engine: Engine) -> None:
    upgrade(stack, engine)
    for statement in (
        "INSERT INTO jobs (kind, lane, user_id) VALUES ('probe', 'bulk', 4711)",
        "UPDATE subscription_events SET user_id = 4711",
        "DELETE FROM users WHERE id = 20",
    ):
        with pytest.raises(Exception, match="violates foreign key"):
            rows(engine, f"{statement} RETURNING 1")
    rows(engine, "DELETE FROM imports WHERE id = 7 RETURNING 1")
    assert not rows(engine, "SELECT 1 FROM import_changes WHERE import_id = 7")
    rows(engine, "DELETE FROM subscription_events WHERE user_id = 20 RETURNING 1")
    rows(engine, "DELETE FROM users WHERE id = 20 RETURNING 1")
    assert not rows(engine, "SELECT 1 FROM jobs WHERE user_id = 20")


def test_rights_that_an_operator_gave_and_triggers_are_kept(stack: Stack, engine: Engine) -> None:
    reader = f"reader_{secrets.token_hex(4)}"
    for statement in (
        f"CREATE ROLE {reader}",
        f"GRANT SELECT ON jobs TO {reader}",
        "CREATE TABLE seen (id bigint)",
        (
            "CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS"
            " 'BEGIN INSERT INTO seen SELECT id FROM added; RETURN NULL; END'"
        ),
        (
            "CREATE TRIGGER jobs_seen AFTER INSERT ON jobs REFERENCING NEW TABLE AS added"
            " FOR EACH STATEMENT EXECUTE FUNCTION see()"
        ),
    ):
        with engine.begin() as connection:
            connection.exec_driver_sql(statement)
    try:
        upgrade(stack, engine)
        may = f"SELECT has_table_privilege('{reader}', 'jobs', 'SELECT')"
        assert rows(engine, may) == [(True,)]
        [(job_id,)] = rows(engine, CALLS[0])
        assert rows(engine, "SELECT id FROM seen") == [(job_id,)]
    finally:
        with engine.begin() as connection:
            connection.exec_driver_sql(f"DROP OWNED BY {reader}; DROP ROLE {reader}")


def test_callers_go_on_while_the_tables_become_partitions(stack: Stack, engine: Engine) -> None:
    """A table that a transaction holds is left alone, and tried again."""
    ends, calls = threading.Event(), list[float]()

    def call() -> None:
        with closing(psycopg2.connect(url_of(engine).replace("+psycopg2", ""))) as connected:
            connected.autocommit = True
            with connected.cursor() as cursor:
                cursor.execute("SET lock_timeout = '3s'")  # as our processes have it
                while not ends.is_set():
                    for statement in CALLS:
                        cursor.execute(statement)
                        calls.append(cursor.rowcount)

    with engine.connect() as holder, holder.begin():
        holder.exec_driver_sql("SELECT * FROM jobs WHERE id = 1 FOR UPDATE")
        caller = threading.Thread(target=call)
        migrates = threading.Thread(target=lambda: upgrade(stack, engine))
        caller.start()
        migrates.start()
        waits = (
            "SELECT query_start FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name = 'pressroom-migrate' AND wait_event_type = 'Lock'"
        )
        begun = set[object]()

        def has_tried_twice() -> bool:
            begun.update(rows(engine, waits))
            return len(begun) > 1

        # It gave up once, so that callers went on.
        eventually(has_tried_twice, what="a second wait for the table")
    migrates.join(60)
    ends.set()
    caller.join(60)
    assert not migrates.is_alive()
    assert set(calls) == {1}
    assert differences(engine) == []


def test_indexes_of_later_migrations_are_built_and_dropped_beside_running_code(
    stack: Stack, engine: Engine
) -> None:
    upgrade(stack, engine)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"transaction_per_migration": True})

        def step(act: object, *arguments: str, **options: str) -> None:
            assert callable(act)
            with context.begin_transaction(_per_migration=True), Operations.context(context):
                act(*arguments, **options)

        make_next = "SELECT make_partition('jobs')"
        age = "UPDATE partitions SET made_at = made_at - interval '99 days' RETURNING 1"
        rows(engine, age)
        assert rows(engine, make_next) == [("jobs_p1",)]
        for _ in range(2):  # a second time where it is there
            step(online.create_index, "ix_jobs_kind", "jobs", "kind", where="attempt > 3")
        assert rows(engine, "SELECT turn_partition('jobs')") == [("jobs_p1",)]
        rows(engine, CALLS[0])
        rows(engine, age.replace("made_at", "closed_at"))
        assert rows(engine, make_next) == [("jobs_p2",)]
        valid = (
            "SELECT indexrelid::regclass::text FROM pg_index WHERE indisvalid"
            " AND indexrelid::regclass::text LIKE 'ix_jobs_kind%' ORDER BY 1"
        )
        built = ["ix_jobs_kind", "ix_jobs_kind_p0", "ix_jobs_kind_p1", "ix_jobs_kind_p2"]
        assert rows(engine, valid) == [(name,) for name in built]
        step(online.drop_index, "ix_jobs_kind")
        assert rows(engine, valid) == []
