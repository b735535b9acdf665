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

_WHICH = Statement("SELECT pg_backend_pid()")
_SLOWLY = Statement("SELECT pg_backend_pid() FROM pg_sleep(:seconds)")


@pytest.fixture
def database(stack: Stack) -> Iterator[Database]:
    """With connections for statements by themselves, as an API process has them."""
    opened = open_database(
        stack.settings(), pool_size=1, application_name="pressroom-alone", single_statements=4
    )
    yield opened
    opened.close()


def which(database: Database) -> object:
    [(found,)] = database.rows(_WHICH)
    return found


def test_database_connections_disable_jit_compilation(database: Database) -> None:
    """A chunk of an import would wait longer for the compiler than for its rows."""
    assert database.rows(Statement("SHOW jit")) == [("off",)]
    with database.engine.connect() as connection:
        assert connection.exec_driver_sql("SHOW jit").scalar() == "off"


def test_concurrent_statements_use_separate_database_connections(database: Database) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = [pool.submit(database.rows, _SLOWLY, seconds=0.3) for _ in range(4)]
        assert len({each.result()[0] for each in found}) == 4


def told_of(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def test_database_error_message_contains_no_row_values(stack: Stack, database: Database) -> None:
    """Neither by what Postgres says of the row, nor by the part of the statement that it quotes."""
    email = stack.create_owner().email
    twice = "INSERT INTO users (id, email) VALUES (1, :email)"
    with pytest.raises(psycopg2.errors.UniqueViolation, match="uq_users_email") as alone:
        database.rows(Statement(twice), email=email)
    assert email not in told_of(alone.value)
    # For whoever asks.
    assert email in str(alone.value.diag.message_detail)
    for statement in (twice, "SELECT :email + nonsense"):
        with (
            database.engine.connect() as connection,
            pytest.raises(DBAPIError, match=r"uq_users_email|nonsense") as caught,
        ):
            connection.execute(text(statement), {"email": email})
        assert email not in told_of(caught.value)
    rename = text("UPDATE users SET email = :email WHERE id = :id")
    many = [{"email": email, "id": stack.create_owner().user_id} for _ in range(2)]
    with (
        database.engine.connect() as connection,
        pytest.raises(DBAPIError, match="uq_users_email") as one_of_many,
    ):
        connection.execute(rename, many)
    assert email not in told_of(one_of_many.value)
    copy, line = "COPY users (id, email) FROM STDIN", io.StringIO(f"1\t{email}\n")
    with closing(database.engine.raw_connection()) as raw:
        cursor: Any = raw.cursor()
        with pytest.raises(psycopg2.errors.UniqueViolation) as copied:
            cursor.copy_expert(copy, line)
    assert email not in told_of(copied.value)


def closed_by_the_server(stack: Stack, database: Database) -> object:
    """The connection used last, which has just ended."""
    last = which(database)
    stack.query("SELECT pg_terminate_backend(%s)", last)
    gone = "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = %s"
    eventually(lambda: stack.query(gone, last) == [(True,)], what="the connection's end")
    return last


def test_connection_closed_by_the_server_is_not_reused(stack: Stack, database: Database) -> None:
    assert closed_by_the_server(stack, database) != which(database)


def test_lost_connections_free_their_places_in_the_pool(stack: Stack) -> None:
    small = open_database(
        stack.settings(), pool_size=1, application_name="pressroom-small", single_statements=1
    )
    with closing(small):
        for _ in range(3):
            closed_by_the_server(stack, small)
        with small.engine.begin() as busy:
            busy.exec_driver_sql("SELECT 1")
            which(small)
