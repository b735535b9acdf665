import subprocess
import threading
import time
from contextlib import closing
from pathlib import Path

import psycopg2
import pytest
from pydantic import SecretStr
from sqlalchemy import make_url

from devstack.harness.embedded_services import Services
from devstack.harness.stack import Stack
from storage.backup_files import postgres_tools
from storage.backup_files.postgres_tools import PostgresToolFailed
from tests.support.deployment.pooler import running_pooler

pytestmark = pytest.mark.usefixtures("postgres_tools_on_path")


def test_application_role_can_dump_the_whole_database(stack: Stack) -> None:
    content = b"".join(postgres_tools.dump(stack.settings().database_url))
    assert content.startswith(b"PGDMP")


def test_database_password_does_not_appear_in_the_process_list_during_a_dump(stack: Stack) -> None:
    database = stack.settings().database_url
    password = make_url(database.get_secret_value()).password
    assert password
    with closing(postgres_tools.dump(database)) as dump:
        next(dump)
        process_list = subprocess.run(
            ["ps", "-ww", "-A", "-o", "args"], capture_output=True, text=True, check=True
        )
    assert "pg_dump" in process_list.stdout
    assert password not in process_list.stdout


def test_abandoned_dump_leaves_no_running_process(stack: Stack) -> None:
    with closing(postgres_tools.dump(stack.settings().database_url)) as dump:
        next(dump)
    children = Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()
    commands = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children]
    assert not [each for each in commands if b"pg_dump" in each]


def test_missing_pg_dump_program_is_named_in_the_error(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(PostgresToolFailed, match="pg_dump is not on the PATH"):
        next(postgres_tools.dump(stack.settings().database_url))


def test_failed_restore_reports_the_error_of_pg_restore(stack: Stack) -> None:
    owner = SecretStr(stack.owner_url)
    with pytest.raises(PostgresToolFailed, match=r"pg_restore: .*archive"):
        postgres_tools.restore(owner, [b"no dump at all" * 100_000])


def test_dump_is_aborted_when_the_server_stays_silent(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_tools, "_MAX_SILENT_SECONDS", 0.5)
    with closing(psycopg2.connect(stack.owner_url)) as connection, connection.cursor() as cursor:
        # The dump waits for this table before it sends anything.
        cursor.execute("LOCK TABLE composer_uses IN ACCESS EXCLUSIVE MODE")
        began_at = time.monotonic()
        with pytest.raises(PostgresToolFailed, match="stopped sending data"):
            list(postgres_tools.dump(stack.settings().database_url))
        assert time.monotonic() - began_at < 30


def test_dump_through_a_connection_pooler_is_rejected(services: Services, stack: Stack) -> None:
    with running_pooler(services, stack, size=2) as pool:
        pooler_url = SecretStr(pool.url)
        with pytest.raises(PostgresToolFailed, match="PRESSROOM_BACKUP_DATABASE_URL"):
            next(postgres_tools.dump(pooler_url))
