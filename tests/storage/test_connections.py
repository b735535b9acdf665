"""Tests the connection pools of the database client, and the client's error messages."""

import io
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import psycopg2
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from storage.database import Database, Statement, open_database

_SELECT_PID = Statement("SELECT pg_backend_pid()")
_SELECT_PID_SLOWLY = Statement("SELECT pg_backend_pid() FROM pg_sleep(:seconds)")


@pytest.fixture
def database(stack: Stack) -> Iterator[Database]:
    """A database client with separate connections for statements outside of transactions.

    The database client of an API process has such connections too.
    """
    opened = open_database(
        stack.settings(), pool_size=1, application_name="pressroom-alone", single_statements=4
    )
    yield opened
    opened.close()


def read_backend_pid(database: Database) -> object:
    """Return the process id of the Postgres backend that serves a connection of the client."""
    [(pid,)] = database.rows(_SELECT_PID)
    return pid


def test_database_connections_disable_jit_compilation(database: Database) -> None:
    """For the SQL statements of an import, JIT compilation would take longer than execution."""
    assert database.rows(Statement("SHOW jit")) == [("off",)]
    with database.engine.connect() as connection:
        assert connection.exec_driver_sql("SHOW jit").scalar() == "off"


def test_concurrent_statements_use_separate_database_connections(database: Database) -> None:
    with ThreadPoolExecutor(4) as pool:
        results = [pool.submit(database.rows, _SELECT_PID_SLOWLY, seconds=0.3) for _ in range(4)]
        assert len({each.result()[0] for each in results}) == 4


def format_error(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def test_database_error_message_contains_no_row_values(stack: Stack, database: Database) -> None:
    """The error message omits parts of Postgres' message: the row's values and the statement."""
    email = stack.create_owner().email
    insert_duplicate = "INSERT INTO users (id, email) VALUES (1, :email)"
    with pytest.raises(psycopg2.errors.UniqueViolation, match="uq_users_email") as single_error:
        database.rows(Statement(insert_duplicate), email=email)
    assert email not in format_error(single_error.value)
    # Only the attribute ``diag`` of a Postgres error contains the values of the rejected row.
    assert email in str(single_error.value.diag.message_detail)
    for statement in (insert_duplicate, "SELECT :email + nonsense"):
        with (
            database.engine.connect() as connection,
            pytest.raises(DBAPIError, match=r"uq_users_email|nonsense") as caught,
        ):
            connection.execute(text(statement), {"email": email})
        assert email not in format_error(caught.value)
    rename = text("UPDATE users SET email = :email WHERE id = :id")
    batch = [{"email": email, "id": stack.create_owner().user_id} for _ in range(2)]
    with (
        database.engine.connect() as connection,
        pytest.raises(DBAPIError, match="uq_users_email") as batch_error,
    ):
        connection.execute(rename, batch)
    assert email not in format_error(batch_error.value)
    copy = "COPY users (id, email) FROM STDIN"
    line = io.StringIO(f"1\t{email}\n")
    with closing(database.engine.raw_connection()) as raw:
        cursor: Any = raw.cursor()
        with pytest.raises(psycopg2.errors.UniqueViolation) as copy_error:
            cursor.copy_expert(copy, line)
    assert email not in format_error(copy_error.value)


def terminate_connection(stack: Stack, database: Database) -> object:
    """Make Postgres close the last used connection, and return the process id of its backend."""
    pid = read_backend_pid(database)
    stack.query("SELECT pg_terminate_backend(%s)", pid)
    has_ended = "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = %s"
    eventually(lambda: stack.query(has_ended, pid) == [(True,)], what="the connection's end")
    return pid


def test_connection_closed_by_the_server_is_not_reused(stack: Stack, database: Database) -> None:
    assert terminate_connection(stack, database) != read_backend_pid(database)


def test_lost_connections_free_their_places_in_the_pool(stack: Stack) -> None:
    small = open_database(
        stack.settings(), pool_size=1, application_name="pressroom-small", single_statements=1
    )
    with closing(small):
        for _ in range(3):
            terminate_connection(stack, small)
        with small.engine.begin() as busy:
            busy.exec_driver_sql("SELECT 1")
            read_backend_pid(small)
