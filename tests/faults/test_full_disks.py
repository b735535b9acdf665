"""Tests that a full disk of each store is reported, and that all processes recover alone."""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest

from devstack.harness.embedded_services import Services, embedded_services
from devstack.harness.free_ports import free_port
from devstack.harness.opening import open_stack
from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack
from models import AttachmentStatus
from tests.support.commands.running import run_command_process
from tests.support.http.replies import data, send
from tests.support.lists.people_on_lists import new_list
from tests.support.prerequisites import skip_or_fail

_BLOCK = b"x" * 65_536
_MAX_UNMOUNT_SECONDS = 30.0

pytestmark = pytest.mark.tier("faults")

MEGABYTES = {"database": 500, "redis": 16, "objects": 64}
ADVICE = "Free space on the server's disk, or enlarge the disk. See docs/runbook.md."
NAMES = {"database": "database", "redis": "redis", "objects": "object storage"}


@dataclass(frozen=True)
class SmallDisk:
    """A file system in memory."""

    path: Path

    @property
    def _ballast(self) -> Path:
        return self.path / "ballast"

    def fill(self) -> None:
        with self._ballast.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(_BLOCK)

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)


@contextmanager
def mount_small_disk(path: Path, megabytes: int) -> Iterator[SmallDisk]:
    """Mount an empty file system at ``path`` until the block ends.

    Skip the test if this process may not mount file systems.
    """
    path.mkdir(mode=0o711, exist_ok=True)
    options = f"size={megabytes}m,mode=0711"
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", path],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        skip_or_fail(f"this user can't mount a file system: {mounted.stderr.strip()}")
    try:
        yield SmallDisk(path)
    finally:
        _unmount(path)


@contextmanager
def full_disks(*disks: SmallDisk) -> Iterator[None]:
    with ExitStack() as freed:
        for disk in disks:
            freed.callback(disk.free)
            disk.fill()
        yield


def _unmount(path: Path) -> None:
    deadline = time.monotonic() + _MAX_UNMOUNT_SECONDS
    while os.path.ismount(path):
        # A process that has just been killed may still use the file system.
        if subprocess.run(["umount", path], capture_output=True, check=False).returncode != 0:
            assert time.monotonic() < deadline, f"{path} is still in use"
            time.sleep(0.2)


@dataclass(frozen=True)
class Deployment:
    """A stack with two API processes, and a small disk for each store."""

    first: Stack
    second: Stack
    services: Services
    disks: dict[str, SmallDisk]
    owner: Owner

    def read_health(self) -> list[httpx2.Response]:
        self.services.group.tick()
        replies = []
        for each in (self.first, self.second):
            with each.client() as client:
                replies.append(client.get("/readyz"))
        return replies

    def is_healthy(self) -> bool:
        return all(reply.json()["status"] == "ok" for reply in self.read_health())

    def list_full_disks(self) -> list[set[str]]:
        """Return for each API process the names of the disks that it calls full."""
        replies = self.read_health()
        assert {reply.status_code for reply in replies} == {200}
        return [
            {name for name, status in reply.json()["dependencies"].items() if status == "full"}
            for reply in replies
        ]


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    logs = tmp_path_factory.mktemp("logs")
    home = tmp_path_factory.mktemp("small") / "home"
    with ExitStack() as opened:
        disks = {"database": opened.enter_context(mount_small_disk(home, MEGABYTES["database"]))}
        for name, folder in (("redis", "valkey"), ("objects", "s3")):
            disk = mount_small_disk(home / folder, MEGABYTES[name])
            disks[name] = opened.enter_context(disk)
        services = opened.enter_context(embedded_services(home))
        stack = opened.enter_context(open_stack(services, logs, "small", 1, free_port()))
        # As in the Compose file. With ``always``, Valkey ends when its disk is full.
        stack.resources.redis.config_set("appendfsync", "everysec")
        _reserve_log_files(stack)
        stack.start_api()
        stack.start_worker("maintenance", "request", concurrency=2)
        stack.start_worker("media", concurrency=1)
        second = opened.enter_context(stack.run_second_api())
        yield Deployment(stack, second, services, disks, stack.create_owner())


@pytest.mark.parametrize(
    "names", [["objects"], ["redis"], ["database"], ["database", "objects", "redis"]]
)
def test_full_disk_is_named_without_traffic_and_everything_recovers_without_a_restart(
    deployment: Deployment, names: list[str]
) -> None:
    stack = deployment.first
    log_sizes = {each.log: each.log.stat().st_size for each in stack.processes}
    eventually(deployment.is_healthy, what="readiness")
    pids = [each.pid for each in stack.processes]
    with stack.client(deployment.owner.key) as client:
        list_id = new_list(client)
        with full_disks(*(deployment.disks[name] for name in names)):
            expected = {f"{name}_disk" for name in names}
            eventually(
                lambda: all(expected <= each for each in deployment.list_full_disks()),
                within=150,
                what=f"the report of {expected} by each API process",
            )
            assert client.get(f"/lists/{list_id}").status_code == 200
            assert _list_full_stores(stack) >= set(names)
            doctor = run_command_process(stack.environment, "doctor", "--json")
            assert doctor.returncode == 1
            findings = {(each["part"], each["check"]): each for each in json.loads(doctor.stdout)}
            for name in names:
                assert findings[NAMES[name], "disk"]["advice"] == ADVICE
            time.sleep(1)
        eventually(deployment.is_healthy, within=150, what="recovery")
        assert data(send(client, prefer="wait=30"))["status"] == AttachmentStatus.READY
        assert client.get(f"/lists/{new_list(client)}").status_code == 200
    assert [each.pid for each in stack.processes] == pids
    assert all(each.process.poll() is None for each in stack.processes)
    api_log = next(each.log for each in stack.processes if each.name == "api")
    lines = _read_lines(api_log, log_sizes[api_log])
    for name in names:
        reports = [
            each
            for each in lines
            if each["event"] == "disk.full" and NAMES[name] in each["reason"].lower()
        ]
        assert reports
        assert {each["level"] for each in reports} == {"error"}


def _reserve_log_files(stack: Stack) -> None:
    """Let Postgres create files of its write-ahead log that it can reuse.

    Postgres ends if it can't create such a file. Without the files, it would depend on chance
    whether Postgres ends during the test.
    """
    for _ in range(8):
        stack.query("SELECT pg_logical_emit_message(true, 'test', 'x')")
        stack.query("SELECT pg_switch_wal()")
    stack.query("CHECKPOINT")


def _list_full_stores(stack: Stack) -> set[str]:
    with stack.client(stack.environment["PRESSROOM_METRICS_TOKEN"]) as client:
        text = client.get("/metrics").text
    lines = [each for each in text.splitlines() if each.startswith("pressroom_disk_full{")]
    return {each.split('"')[1] for each in lines if each.endswith(" 1.0")}


def _read_lines(log: Path, start: int) -> list[dict[str, str]]:
    text = log.read_bytes()[start:].decode()
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]
