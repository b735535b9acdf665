"""Chooses free loopback ports, and finds the program that uses a port."""

import os
import random
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from devstack import LOOPBACK
from devstack.supervisor.home_folder import StackError, read_json_object, write_private_json

# The loopback ports of stacks. A stack's ports are below the range of outgoing connections, which
# starts at 32768 on Linux. The S3 server's gRPC port is its port number plus 10,000, and must be
# below 32768.
STACK_PORTS = range(15_000, 22_700)


def is_port_free(port: int) -> bool:
    with socket.socket() as probe:
        # Set SO_REUSEADDR as servers do, because connections in TIME_WAIT would otherwise block the
        # port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def is_listening(pid: int, port: int) -> bool:
    """Check a process and its descendants, or return true if the operating system forbids the
    check.
    """
    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
        connections = [each for member in family for each in member.net_connections("tcp")]
    except psutil.AccessDenied:
        return True
    except psutil.Error:
        return False
    return any(
        each.status == psutil.CONN_LISTEN and each.laddr.port == port for each in connections
    )


class PortPicker:
    """Picks free ports, each at most once, and prefers the ports of the last run.

    The chosen ports are stored in a file between runs.
    """

    def __init__(self, file: Path, among: Sequence[int] = STACK_PORTS) -> None:
        self._file = file
        self._among = among
        last_ports = read_json_object(file) or {}
        self.last_ports = {name: port for name, port in last_ports.items() if isinstance(port, int)}
        self.chosen_ports: dict[str, int] = {}

    def pick(self, name: str, is_usable: Callable[[int], bool] = lambda _: True) -> int:
        # Try the ports in random order, so that two stacks that start at the same time rarely
        # choose the same port.
        candidates = random.sample(self._among, len(self._among))
        for port in [self.last_ports.get(name, 0), *candidates]:
            if (
                port
                and port not in self.chosen_ports.values()
                and is_port_free(port)
                and is_usable(port)
            ):
                self.chosen_ports[name] = port
                return port
        raise StackError("No free loopback port between 15000 and 22700.")

    def store_choices(self) -> None:
        write_private_json(self._file, self.chosen_ports)


def read_port_setting(name: str, default: int) -> int:
    """Raise ``StackError`` if the port isn't free."""
    text = os.environ.get(name) or str(default)
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 65536:  # noqa: PLR2004
        raise StackError(f"{name} is {text!r}, which is not a port number.", exit_code=2)
    port = int(text)
    if is_port_free(port):
        return port
    if port < 1024 and os.geteuid() != 0:  # noqa: PLR2004
        raise StackError(
            f"Port {port} is taken or not allowed for this user. Set {name} to a port above 1023, "
            f"for example {name}=8080.",
            exit_code=2,
        )
    next_free = next((each for each in range(port + 1, 65536) if is_port_free(each)), port)
    raise StackError(
        f"Port {port} is taken{_describe_holder(port)}. Stop that program, or set {name} to "
        f"another port, for example {name}={next_free}.",
        exit_code=2,
    )


def _describe_holder(port: int) -> str:
    """Return a text such as " by nginx (pid 12)", or ""."""
    with suppress(psutil.Error):
        for each in psutil.net_connections("tcp"):
            is_listener = (
                each.status == psutil.CONN_LISTEN and each.laddr and each.laddr.port == port
            )
            if is_listener and each.pid:
                return f" by {psutil.Process(each.pid).name()} (pid {each.pid})"
    return ""
