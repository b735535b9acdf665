"""Runs pg_dump and pg_restore, which write and read dumps in Postgres' custom format.

Both programs must be on the PATH, and must not be older than the database server.
"""

import os
import select
import shutil
import subprocess
import tempfile
from collections.abc import Generator, Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress

import psycopg2
from psycopg2.extensions import connection
from pydantic import SecretStr
from sqlalchemy import URL, make_url

from core.settings.given_settings import variable_of
from storage.database import is_pooled, run_single_statement

_MAX_READ_BYTES = 1024 * 1024
# The maximum time without data from the database server during a dump. The time limit is generous,
# because the server may have to sort a large table before it sends the first row.
_MAX_SILENT_SECONDS = 900.0
_MAX_REASON_CHARACTERS = 500
# The only environment variables that pg_dump and pg_restore inherit, because other variables may
# contain secrets.
_INHERITED_VARIABLES = ("PATH", "HOME", "TMPDIR")
# With these connection options, pg_dump notices within half a minute that the database server has
# vanished.
_CONNECTION_OPTIONS = {
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
}
# Counts the tables, views and sequences in the public schema that don't belong to an extension.
_COUNT_TABLES = """
SELECT count(*) FROM pg_class
WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'S')
    AND NOT EXISTS (SELECT FROM pg_depend WHERE objid = pg_class.oid AND deptype = 'e')
"""


class PostgresToolFailed(Exception):
    """The exception's message names the program and the reason."""


def dump(database: SecretStr) -> Generator[bytes, None, None]:
    """Yield a consistent dump of the database in chunks of varying size."""
    _require_primary(database)
    options = (
        "--format=custom",
        "--compress=1",
        "--lock-wait-timeout=60000",
        # Leave out the request bodies in which mail providers sent reports, because these request
        # bodies contain personal data, and are deleted from the database within a day.
        "--exclude-table-data=public.sender_bodies",
    )
    with _run_program("pg_dump", database, *options) as process:
        assert process.stdout is not None
        output = process.stdout.fileno()
        while select.select([output], [], [], _MAX_SILENT_SECONDS)[0]:
            piece = os.read(output, _MAX_READ_BYTES)
            if not piece:
                return
            yield piece
        raise PostgresToolFailed("pg_dump: the database stopped sending data")


def restore(database: SecretStr, pieces: Iterable[bytes]) -> None:
    """Restore a dump into an empty database, either completely or not at all.

    The restoring role becomes the owner of all tables and functions.
    """
    options = ("--single-transaction", "--exit-on-error")
    with _run_program("pg_restore", database, *options) as process:
        assert process.stdin is not None
        # A broken pipe means that pg_restore has failed. The error output of pg_restore explains
        # why it has failed.
        with suppress(BrokenPipeError):
            for piece in pieces:
                unwritten = memoryview(piece)
                while unwritten:
                    unwritten = unwritten[os.write(process.stdin.fileno(), unwritten) :]


def has_tables(database: SecretStr) -> bool:
    """Return whether the database contains tables, views or sequences."""
    with _connect(database) as session:
        [(count,)] = run_single_statement(session, _COUNT_TABLES)
    return bool(count)


def _require_primary(database: SecretStr) -> None:
    """Raise ``PostgresToolFailed`` unless the URL connects directly to the primary.

    Through a connection pooler, pg_dump would change the session settings of other clients. A
    replica may lack changes that the journal of erasures and opt-outs already contains.
    """
    with _connect(database) as session:
        leads_through_pool = is_pooled(session)
        [(is_replica,)] = run_single_statement(session, "SELECT pg_is_in_recovery()")
    if leads_through_pool or is_replica:
        problem = "is the URL of a replica" if is_replica else "is the URL of a connection pool"
        raise PostgresToolFailed(
            f"pg_dump: the database URL {problem}; set {variable_of('backup_database_url')} to the "
            "URL of the database server"
        )


def _connect(database: SecretStr) -> AbstractContextManager[connection]:
    url = _parse_url(database).render_as_string(hide_password=False)
    return closing(psycopg2.connect(url, connect_timeout=10))


def _parse_url(database: SecretStr) -> URL:
    return make_url(database.get_secret_value()).set(drivername="postgresql")


@contextmanager
def _run_program(
    program: str, database: SecretStr, *options: str
) -> Iterator[subprocess.Popen[bytes]]:
    path = shutil.which(program)
    if path is None:
        raise PostgresToolFailed(
            f"{program} is not on the PATH; install the Postgres client programs"
        )
    url = _parse_url(database)
    # Pass the database password in the environment, because every user of the machine can read the
    # arguments of a process.
    public_url = url._replace(password=None).update_query_dict(_CONNECTION_OPTIONS)
    environment = {name: os.environ[name] for name in _INHERITED_VARIABLES if name in os.environ}
    if url.password is not None:
        environment["PGPASSWORD"] = url.password
    arguments = ["--no-owner", "--no-privileges", *options]
    with tempfile.TemporaryFile() as error_output:
        process = subprocess.Popen(  # noqa: S603 - no argument comes from a user
            [path, *arguments, f"--dbname={public_url.render_as_string()}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=error_output,
            bufsize=0,
            env=environment,
        )
        with process:
            try:
                yield process
            except BaseException:
                # Kill the program before closing its input, because pg_restore would treat a closed
                # input as the end of the dump.
                process.kill()
                raise
        if process.returncode:
            error_output.seek(0)
            reason = error_output.read().decode(errors="replace").strip()
            raise PostgresToolFailed(f"{program}: {reason[-_MAX_REASON_CHARACTERS:]}")
