"""Runs the embedded services Postgres, Valkey and S3 without Pressroom's programs."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from devstack.harness.free_ports import OUR_PORTS
from devstack.supervisor.child import Program
from devstack.supervisor.embedded.stack import (
    SERVICE_STAGE,
    build_common_settings,
    lock_services,
    plan_services,
)
from devstack.supervisor.home_folder import Home, Secrets, StackError, load_or_create_secrets
from devstack.supervisor.ports import PortPicker
from devstack.supervisor.supervision import Group

# The name prefix of the buckets of isolated stacks.
BUCKET_PREFIX = "pressroom-"
_MAX_START_SECONDS = 60.0


@dataclass(frozen=True)
class Services:
    """The running embedded services Postgres, Valkey and S3.

    Attributes:
        environment: the PRESSROOM_ settings for connecting to the embedded services.
        secrets: the passwords and keys of the services and their administrators.
    """

    environment: dict[str, str]
    group: Group
    secrets: Secrets

    @property
    def pids(self) -> dict[str, int]:
        return self.group.pids

    def restart(self, name: str) -> None:
        """Kill `postgres`, `valkey` or `s3`, and wait until it has restarted and is ready."""
        kill_and_await(self.group, name)


def kill_and_await(group: Group, name: str) -> None:
    group[name].send_signal(signal.SIGKILL)
    while group[name].is_usable:
        group.tick()
        time.sleep(0.01)
    await_ready(group)


def await_ready(group: Group) -> None:
    deadline = time.monotonic() + _MAX_START_SECONDS
    while True:
        group.tick()
        if group.is_ready:
            return
        group.check_start()
        if time.monotonic() > deadline:
            raise StackError(f"Not ready after {_MAX_START_SECONDS:.0f} s: {group.list_unready()}.")
        time.sleep(0.02)


# The programs that run the embedded services, and the settings for connecting to the services.
Plan = tuple[list[Program], dict[str, str]]


def _keep_location(programs: list[Program], environment: dict[str, str]) -> Plan:
    return programs, environment


@contextmanager
def embedded_services(
    home: Path, relocate: Callable[[list[Program], dict[str, str]], Plan] = _keep_location
) -> Iterator[Services]:
    """Run Postgres, Valkey and S3 during the block, with their data in the folder ``home``.

    PRESSROOM_ settings of the user have no effect on the services. Call this function in the main
    thread, because Linux kills the servers when the thread that started them ends. ``relocate`` may
    change the services' programs and settings, for example to use a network namespace.
    """
    home_folder = Home(home.resolve())
    home_folder.create()
    secrets = load_or_create_secrets(home_folder)
    with lock_services(home_folder) as lock:
        picker = PortPicker(home_folder.ports_file, among=OUR_PORTS)
        programs, environment = plan_services(
            home_folder, secrets, picker, lock, more_buckets=f"{BUCKET_PREFIX}*"
        )
        programs, environment = relocate(programs, environment)
        picker.store_choices()
        settings = build_common_settings(secrets, api_url="http://127.0.0.1:8000")
        group = Group(programs, report=lambda _: None)
        try:
            await_ready(group)
            yield Services({**settings, **environment}, group, secrets)
        finally:
            group.stop([SERVICE_STAGE])
