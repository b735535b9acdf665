import json
import os
import shutil
import socket
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from io import BytesIO
from pathlib import Path

import psutil
import psycopg2
import pytest
import urllib3
from minio import Minio
from minio.error import S3Error

from devstack.harness.embedded_services import Services, embedded_services
from tests.support.stack.open_checkout import Checkout
from tests.support.stack.ordinary_user import OrdinaryUser
from tests.support.stack.waiting import is_running, list_users

RUN_UNTIL_KILLED = """
import sys, time
from pathlib import Path
from devstack.harness.embedded_services import embedded_services
with embedded_services(Path(sys.argv[1])) as services:
    print(*services.pids.values(), flush=True)
    time.sleep(600)
"""

pytestmark = pytest.mark.stack


@pytest.fixture(scope="module")
def deep_home() -> Iterator[Path]:
    # Use a long path, to test that the devstack's sockets don't exceed the maximum length of a
    # socket's path.
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory) / ("a-rather-long-name/" * 5) / "home"


@pytest.fixture(scope="module")
def own_services(deep_home: Path) -> Iterator[Services]:
    running = embedded_services(deep_home)
    with pytest.MonkeyPatch.context() as patch:
        # A developer's shell may set variables such as ``PGHOST``. The devstack must not pass the
        # shell's variables to its servers.
        patch.setenv("AWS_ACCESS_KEY_ID", "strangers-key")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "strangers-secret")
        patch.setenv("PGSSLMODE", "require")
        patch.setenv("PGHOST", "database.example")
        services = running.__enter__()
    try:
        yield services
    finally:
        running.__exit__(None, None, None)


def query(own_services: Services, statement: str) -> list[tuple[object, ...]]:
    url = own_services.environment["PRESSROOM_MIGRATION_DATABASE_URL"]
    with closing(psycopg2.connect(url)) as session, session, session.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall() if cursor.description else []


def valkey(own_services: Services, *lines: str, password: str | None = None) -> bytes:
    url = urllib3.util.parse_url(own_services.environment["PRESSROOM_REDIS_URL"])
    login = password or own_services.secrets.valkey_admin_password
    with socket.create_connection((url.host or "", url.port or 0), timeout=5) as connection:
        connection.sendall("\r\n".join([f"AUTH {login}", *lines, "QUIT", ""]).encode())
        return connection.makefile("rb").read()


def s3(own_services: Services, access_key: str | None = None, secret: str | None = None) -> Minio:
    settings = own_services.environment
    return Minio(
        settings["PRESSROOM_S3_ENDPOINT"].removeprefix("http://"),
        access_key=access_key or settings["PRESSROOM_S3_ACCESS_KEY"],
        secret_key=secret or settings["PRESSROOM_S3_SECRET_KEY"],
        secure=False,
        region="us-east-1",
        http_client=urllib3.PoolManager(retries=False, timeout=5),
    )


def test_acknowledged_devstack_data_survives_kill_of_postgres_valkey_and_s3(
    own_services: Services,
) -> None:
    query(own_services, "CREATE TABLE kept (word text)")
    query(own_services, "INSERT INTO kept VALUES ('ß é å')")
    assert valkey(own_services, "SET kept 1").endswith(b"+OK\r\n+OK\r\n")
    bucket = own_services.environment["PRESSROOM_S3_BUCKET"]
    s3(own_services).put_object(bucket, "kept", BytesIO(b"picture"), 7)
    for name in ("postgres", "valkey", "s3"):
        before = own_services.pids[name]
        own_services.restart(name)
        assert own_services.pids[name] != before
        assert not is_running(before)
    assert query(own_services, "SELECT upper(word) FROM kept") == [("ß É Å",)]
    assert b"$1\r\n1\r\n" in valkey(own_services, "GET kept")
    with s3(own_services).get_object(bucket, "kept") as reply:
        assert reply.data == b"picture"


def test_devstack_redis_persists_every_write_and_evicts_only_expiring_keys(
    own_services: Services,
) -> None:
    assert b"always" in valkey(own_services, "CONFIG GET appendfsync")
    assert b"volatile-lru" in valkey(own_services, "CONFIG GET maxmemory-policy")


def test_devstack_servers_reject_clients_without_valid_login(own_services: Services) -> None:
    assert b"WRONGPASS" in valkey(own_services, "PING", password="wrong")
    for name in ("PRESSROOM_DATABASE_URL", "PRESSROOM_MIGRATION_DATABASE_URL"):
        with pytest.raises(psycopg2.OperationalError, match="password"):
            psycopg2.connect(own_services.environment[name], password="wrong")
    for access_key, secret in [("strangers-key", "strangers-secret"), ("x" * 20, "y" * 20)]:
        with pytest.raises(S3Error, match="InvalidAccessKeyId"):
            s3(own_services, access_key, secret).list_buckets()


def test_internal_s3_port_rejects_requests_without_login(
    own_services: Services, deep_home: Path
) -> None:
    bucket = own_services.environment["PRESSROOM_S3_BUCKET"]
    s3(own_services).put_object(bucket, "private", BytesIO(b"secret"), 6)
    assert s3(own_services).stat_object(bucket, "private").size == 6
    filer = json.loads((deep_home / "ports.json").read_text())["s3.filer"]
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"http://127.0.0.1:{filer}/buckets/{bucket}/private", timeout=5)
    assert caught.value.code == 401


def test_devstack_secrets_are_hidden_from_process_list_and_other_users(
    own_services: Services, deep_home: Path
) -> None:
    secrets = [
        value
        for name, value in own_services.environment.items()
        if name.endswith(("_KEY", "_KEYS", "_TOKEN", "_PASSWORD"))
    ]
    command_lines = "\n".join(list_users(deep_home))
    assert "weed" in command_lines
    assert not [secret for secret in secrets if secret in command_lines]
    for file in deep_home.iterdir():
        if file.is_file():
            assert file.stat().st_mode & 0o077 == 0, file.name


def test_devstack_servers_listen_only_on_loopback(own_services: Services) -> None:
    for pid in own_services.pids.values():
        for connection in psutil.Process(pid).net_connections("inet"):
            if connection.status == psutil.CONN_LISTEN:
                assert connection.laddr.ip == "127.0.0.1"


@pytest.mark.tier("processes")
def test_two_devstacks_can_run_at_the_same_time(own_services: Services, tmp_path: Path) -> None:
    with embedded_services(tmp_path) as other_services:
        assert not set(other_services.pids.values()) & set(own_services.pids.values())
        assert query(other_services, "SELECT to_regclass('kept')") == [(None,)]
        assert query(own_services, "SELECT 1") == [(1,)]


@pytest.mark.tier("processes")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_devstack_services_can_be_run_by_an_ordinary_user(ordinary_user: OrdinaryUser) -> None:
    code = RUN_UNTIL_KILLED.replace("time.sleep(600)", "")
    completed = ordinary_user.run_python("-c", code, str(ordinary_user.directory))
    assert completed.returncode == 0, completed.stderr
    assert len(completed.stdout.split()) == 3


@pytest.mark.tier("processes")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root needs the user nobody")
def test_devstack_started_by_root_runs_postgres_as_nobody(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Path(tempfile.mkdtemp(dir="/tmp"))
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.syspath_prepend(checkout.packages)
    try:
        for _ in range(2):  # The second run uses the data of the user nobody from the first run.
            with embedded_services(home) as services:
                status = Path(f"/proc/{services.pids['postgres']}/status").read_text()
                assert "Uid:\t65534\t65534" in status
                assert query(services, "SELECT 1") == [(1,)]
    finally:
        shutil.rmtree(home)
