"""Postgres' own programs that write and read dumps, in its custom format.

They are those of the PATH, and as new as the server at least.
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
from storage.database import is_pooled, run_alone

_READ_BYTES = 1024 * 1024
# A server that hangs sends nothing for as long. It may sort a large table before it begins.
_MAX_SILENT_SECONDS = 900.0
_MAX_REASON_CHARACTERS = 500
# A program of ours hands none of its secrets on.
_KEPT = ("PATH", "HOME", "TMPDIR")
# Programs notice within half a minute that their server has vanished.
_CONNECTION = {
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
}
_TABLES = """
SELECT count(*) FROM pg_class
WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'S')
    AND NOT EXISTS (SELECT FROM pg_depend WHERE objid = pg_class.oid AND deptype = 'e')
"""


class PostgresToolFailed(Exception):
    """A program of Postgres is missing or has failed; the text says which one and why."""


def dump(database: SecretStr) -> Generator[bytes, None, None]:
    """All tables at one moment, in pieces of any size. Raises ``PostgresToolFailed``."""
    _require_the_primary(database)
    words = ("--format=custom", "--compress=1", "--lock-wait-timeout=60000")
    with _running("pg_dump", database, *words) as process:
        assert process.stdout is not None
        output = process.stdout.fileno()
        while select.select([output], [], [], _MAX_SILENT_SECONDS)[0]:
            piece = os.read(output, _READ_BYTES)
            if not piece:
                return
            yield piece
        raise PostgresToolFailed("pg_dump: the database sends nothing any more")


def restore(database: SecretStr, pieces: Iterable[bytes]) -> None:
    """Bring a dump into an empty database: all of it, or nothing. Raises ``PostgresToolFailed``.

    Tables and functions belong to the role that restores.
    """
    words = ("--single-transaction", "--exit-on-error")
    with _running("pg_restore", database, *words) as process:
        assert process.stdin is not None
        # A program that has ended early says why.
        with suppress(BrokenPipeError):
            for piece in pieces:
                left = memoryview(piece)
                while left:
                    left = left[os.write(process.stdin.fileno(), left) :]


def has_tables(database: SecretStr) -> bool:
    """Return whether anything is in the database; raises ``psycopg2.Error``."""
    with _session(database) as session:
        [(count,)] = run_alone(session, _TABLES)
    return bool(count)


def _require_the_primary(database: SecretStr) -> None:
    """Neither a pool, which would mix what the dump sets for its session with other sessions.

    Nor a replica, which may lack what the journal has told already.
    """
    with _session(database) as session:
        leads_through_pool = is_pooled(session)
        [(is_replica,)] = run_alone(session, "SELECT pg_is_in_recovery()")
    if leads_through_pool or is_replica:
        what = "is that of a replica" if is_replica else "leads through a pool"
        raise PostgresToolFailed(
            f"pg_dump: the URL {what}; set {variable_of('backup_database_url')} to the database"
            " itself"
        )


def _session(database: SecretStr) -> AbstractContextManager[connection]:
    plain = _url(database).render_as_string(hide_password=False)
    return closing(psycopg2.connect(plain, connect_timeout=10))


def _url(database: SecretStr) -> URL:
    return make_url(database.get_secret_value()).set(drivername="postgresql")


@contextmanager
def _running(program: str, database: SecretStr, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """The program at work on this database, until the block ends.

    Raises ``PostgresToolFailed`` if it is missing or has failed by then.
    """
    path = shutil.which(program)
    if path is None:
        raise PostgresToolFailed(f"{program}: is not on the PATH; install Postgres' own programs")
    url = _url(database)
    # Each user of the machine can read the words of a process: the password is not among them.
    named = url._replace(password=None).update_query_dict(_CONNECTION).render_as_string()
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
    if url.password is not None:
        environment["PGPASSWORD"] = url.password
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(  # noqa: S603 - the words are ours
            [path, "--no-owner", "--no-privileges", *words, f"--dbname={named}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            bufsize=0,
            env=environment,
        )
        with process:
            try:
                yield process
            except BaseException:
                # Before its input ends, which would tell it that it has everything.
                process.kill()
                raise
        if process.returncode:
            said.seek(0)
            reason = said.read().decode(errors="replace").strip()
            raise PostgresToolFailed(f"{program}: {reason[-_MAX_REASON_CHARACTERS:]}")
