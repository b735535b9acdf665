"""Runs HAProxy in front of two API hosts, with the example configuration of the deployment."""

import csv
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from devstack.harness.polling import eventually
from devstack.harness.running import Running
from devstack.harness.stack import Stack
from tests.support.http.certificates import self_signed
from tests.support.prerequisites import skip_or_fail

EXAMPLE = Path(__file__).parents[3] / "deploy/haproxy/haproxy.cfg"
# The names of the API hosts in the example configuration.
SERVERS = ("one", "two")


def find_haproxy() -> str:
    """Return the path of the program `haproxy`. If HAProxy isn't installed, skip the test."""
    path = shutil.which("haproxy", path="/usr/local/sbin:/usr/sbin:/usr/local/bin:/usr/bin")
    return path or skip_or_fail("needs haproxy (Debian: haproxy)")


def write_configuration(folder: Path, public: str, hosts: tuple[str, str]) -> Path:
    """Write the example configuration into the folder, with the addresses and files of the test."""
    text = EXAMPLE.read_text()
    certificate = self_signed(folder / "pressroom.pem")
    for original, replacement in {
        # Remove or change the settings for which HAProxy must run as root, such as its user, ports
        # below 1024, and the maximum number of connections.
        "    user haproxy\n    group haproxy\n": "",
        "maxconn 20000": "maxconn 400",
        "/run/haproxy/admin.sock": str(folder / "admin.sock"),
        "    bind :80\n": "",
        "bind :443 ssl": f"bind {public} ssl",
        "/etc/haproxy/pressroom.pem": str(certificate),
        "api-1.internal:8000": hosts[0],
        "api-2.internal:8000": hosts[1],
    }.items():
        assert text.count(original) == 1, original
        text = text.replace(original, replacement)
    file = folder / "haproxy.cfg"
    file.write_text(text)
    return file


@dataclass(frozen=True)
class RunningHaproxy:
    """A running HAProxy, which forwards requests to the API hosts `one` and `two`."""

    url: str
    running: Running
    admin: Path

    def await_up(self, *servers: str) -> None:
        eventually(
            lambda: all(self.state(server) == "UP" for server in servers),
            within=60,
            what=f"{servers}, up",
        )

    def state(self, server: str) -> str:
        return self._read_statistics(server)["status"]

    def _read_statistics(self, server: str) -> dict[str, str]:
        lines = self._run_command("show stat").removeprefix("# ").splitlines()
        [row] = [
            each
            for each in csv.DictReader(lines)
            if (each["pxname"], each["svname"]) == ("api", server)
        ]
        return row

    def _run_command(self, command: str) -> str:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(10)
            connection.connect(str(self.admin))
            connection.sendall(f"{command}\n".encode())
            return connection.makefile().read()


def _is_listening(admin: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as connection, suppress(OSError):
        connection.connect(str(admin))
        return True
    return False


@contextmanager
def running_haproxy(
    stack: Stack, public: str, hosts: tuple[str, str], prefix: tuple[str, ...] = ()
) -> Iterator[RunningHaproxy]:
    """Run HAProxy in front of two API hosts, and wait until HAProxy finds both hosts ready.

    ``public``: the address and port of HAProxy. ``prefix``: words to put before the command
        `haproxy`, for example to run HAProxy in a network namespace.
    """
    # Use a short temporary path, because the path of a Unix socket must not exceed 107 bytes, and
    # pytest's folders have longer paths.
    with tempfile.TemporaryDirectory(prefix="haproxy-") as place:
        folder = Path(place)
        argv = (
            *prefix,
            find_haproxy(),
            "-db",
            "-f",
            str(write_configuration(folder, public, hosts)),
        )
        admin = folder / "admin.sock"
        running = stack.run("haproxy", argv, ready=lambda: _is_listening(admin))
        front = RunningHaproxy(f"https://{public}", running, admin)
        try:
            front.await_up(*SERVERS)
            yield front
        finally:
            running.stop()
            stack.processes.remove(running)
