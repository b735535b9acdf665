"""Runs the embedded services without the supervisor's other programs."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from devstack.harness.free_ports import OUR_PORTS
from devstack.supervisor.child import Program
from devstack.supervisor.embedded.stack import SERVICE_STAGE, common_settings, embed, services_lock
from devstack.supervisor.home_folder import Home, Secrets, StackError, load_or_create_secrets
from devstack.supervisor.ports import PortPicker
from devstack.supervisor.supervision import Group

# The prefix of the names of all buckets that stacks may use.
BUCKET_PREFIX = "pressroom-"
_MAX_START_SECONDS = 60.0


@dataclass(frozen=True)
class Services:
    """The embedded services that are running.

    Attributes:
        environment: the PRESSROOM_ settings that lead to the services.
        secrets: all passwords and keys, with the passwords of the administrators.
    """

    environment: dict[str, str]
    group: Group
    secrets: Secrets

    @property
    def pids(self) -> dict[str, int]:
        return self.group.pids

    def restart(self, name: str) -> None:
        """Kill `postgres`, `valkey` or `s3`, and wait until the restarted service is ready."""
        kill_and_await(self.group, name)


def kill_and_await(group: Group, name: str) -> None:
    group[name].send(signal.SIGKILL)
    while group[name].is_usable:
        group.tick()
        time.sleep(0.01)
    await_ready(group)


def await_ready(group: Group) -> None:
    """Wait until every child is ready. Raises ``StackError`` if a child can't start."""
    deadline = time.monotonic() + _MAX_START_SECONDS
    while True:
        group.tick()
        if group.is_ready:
            return
        group.check_start()
        if time.monotonic() > deadline:
            raise StackError(f"Not ready after {_MAX_START_SECONDS:.0f} s: {group.not_ready()}.")
        time.sleep(0.02)


# Programs, and the settings with which clients reach the programs.
Plan = tuple[list[Program], dict[str, str]]


def _here(programs: list[Program], environment: dict[str, str]) -> Plan:
    return programs, environment


@contextmanager
def embedded_services(
    home: Path, place_elsewhere: Callable[[list[Program], dict[str, str]], Plan] = _here
) -> Iterator[Services]:
    """Run Postgres, Valkey and S3 in a directory. The user's own settings have no effect.

    The caller must be the main thread, because Linux kills the servers when the thread that started
    the servers ends. ``relocate`` may change the programs and settings, so that the services run
    elsewhere.
    """
    place = Home(home.resolve())
    place.create()
    secrets = load_or_create_secrets(place)
    with services_lock(place) as lock:
        picker = PortPicker(place.ports_file, among=OUR_PORTS)
        programs, environment = embed(
            place, secrets, picker, lock, more_buckets=f"{BUCKET_PREFIX}*"
        )
        programs, environment = place_elsewhere(programs, environment)
        picker.keep()
        settings = common_settings(secrets, api_url="http://127.0.0.1:8000")
        group = Group(programs, say=lambda _: None)
        try:
            await_ready(group)
            yield Services({**settings, **environment}, group, secrets)
        finally:
            group.stop([SERVICE_STAGE])
