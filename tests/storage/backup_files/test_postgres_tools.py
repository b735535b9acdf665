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


def test_the_applications_role_may_dump_everything(stack: Stack) -> None:
    dumped = b"".join(postgres_tools.dump(stack.settings().database_url))
    assert dumped.startswith(b"PGDMP")


def test_the_password_is_in_no_list_of_processes(stack: Stack) -> None:
    database = stack.settings().database_url
    password = make_url(database.get_secret_value()).password
    assert password
    with closing(postgres_tools.dump(database)) as dump:
        next(dump)
        listed = subprocess.run(
            ["ps", "-ww", "-A", "-o", "args"], capture_output=True, text=True, check=True
        )
    assert "pg_dump" in listed.stdout
    assert password not in listed.stdout


def test_a_dump_that_is_not_read_to_its_end_leaves_no_process(stack: Stack) -> None:
    with closing(postgres_tools.dump(stack.settings().database_url)) as dump:
        next(dump)
    children = Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()
    commands = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children]
    assert not [each for each in commands if b"pg_dump" in each]


def test_a_program_that_is_missing_is_named(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(PostgresToolFailed, match="pg_dump: is not on the PATH"):
        next(postgres_tools.dump(stack.settings().database_url))


def test_why_a_program_failed_is_told(stack: Stack) -> None:
    owner = SecretStr(stack.owner_url)
    with pytest.raises(PostgresToolFailed, match=r"pg_restore: .*archive"):
        postgres_tools.restore(owner, [b"no dump at all" * 100_000])


def test_a_server_that_sends_nothing_is_given_up(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_tools, "_MAX_SILENT_SECONDS", 0.5)
    with closing(psycopg2.connect(stack.owner_url)) as holder, holder.cursor() as cursor:
        # The dump waits for this table before it sends anything.
        cursor.execute("LOCK TABLE composer_uses IN ACCESS EXCLUSIVE MODE")
        begun = time.monotonic()
        with pytest.raises(PostgresToolFailed, match="sends nothing"):
            list(postgres_tools.dump(stack.settings().database_url))
        assert time.monotonic() - begun < 30


def test_a_dump_through_a_pool_is_refused(services: Services, stack: Stack) -> None:
    with running_pooler(services, stack, size=2) as pool:
        through = SecretStr(pool.url)
        with pytest.raises(PostgresToolFailed, match="PRESSROOM_BACKUP_DATABASE_URL"):
            next(postgres_tools.dump(through))
