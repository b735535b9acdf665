"""HAProxy in front of hosts of the API, by the example's own configuration."""

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
from tests.support.prerequisites import pass_over

EXAMPLE = Path(__file__).parents[3] / "deploy/haproxy/haproxy.cfg"
# The names that the example gives to its servers.
SERVERS = ("one", "two")


def program() -> str:
    found = shutil.which("haproxy", path="/usr/local/sbin:/usr/sbin:/usr/local/bin:/usr/bin")
    return found or pass_over("needs haproxy (Debian: haproxy)")


def configured(folder: Path, public: str, hosts: tuple[str, str]) -> Path:
    """Write the example's configuration into the folder, with addresses and files of the test."""
    text = EXAMPLE.read_text()
    certificate = self_signed(folder / "pressroom.pem")
    for written, ours in {
        # A test may be no administrator, and has few descriptors.
        "    user haproxy\n    group haproxy\n": "",
        "maxconn 20000": "maxconn 400",
        "/run/haproxy/admin.sock": str(folder / "admin.sock"),
        "    bind :80\n": "",
        "bind :443 ssl": f"bind {public} ssl",
        "/etc/haproxy/pressroom.pem": str(certificate),
        "api-1.internal:8000": hosts[0],
        "api-2.internal:8000": hosts[1],
    }.items():
        assert text.count(written) == 1, written
        text = text.replace(written, ours)
    file = folder / "haproxy.cfg"
    file.write_text(text)
    return file


@dataclass(frozen=True)
class Front:
    """A running HAProxy. Its servers are called as in the example."""

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
        return self._shown(server)["status"]

    def _shown(self, server: str) -> dict[str, str]:
        lines = self._order("show stat").removeprefix("# ").splitlines()
        [row] = [
            each
            for each in csv.DictReader(lines)
            if (each["pxname"], each["svname"]) == ("api", server)
        ]
        return row

    def _order(self, words: str) -> str:
        with socket.socket(socket.AF_UNIX) as admin:
            admin.settimeout(10)
            admin.connect(str(self.admin))
            admin.sendall(f"{words}\n".encode())
            return admin.makefile().read()


def _is_listening(admin: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as connection, suppress(OSError):
        connection.connect(str(admin))
        return True
    return False


@contextmanager
def in_front(
    stack: Stack, public: str, hosts: tuple[str, str], prefix: tuple[str, ...] = ()
) -> Iterator[Front]:
    """HAProxy at `public` (address:port) before two hosts, once it finds each of them ready.

    Args:
        prefix: a command that runs it elsewhere, such as in a namespace.
    """
    # A socket's path is short: a test's own folder lies deep.
    with tempfile.TemporaryDirectory(prefix="haproxy-") as place:
        folder = Path(place)
        argv = (*prefix, program(), "-db", "-f", str(configured(folder, public, hosts)))
        admin = folder / "admin.sock"
        running = stack.run("haproxy", argv, ready=lambda: _is_listening(admin))
        front = Front(f"https://{public}", running, admin)
        try:
            front.await_up(*SERVERS)
            yield front
        finally:
            running.stop()
            stack.processes.remove(running)
