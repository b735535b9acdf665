"""Simulates hosts on one machine.

Each host is a network namespace. A bridge connects the hosts, and a test can cut the link of each
host to the bridge.
"""

import ctypes
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest

from tests.support.prerequisites import skip_or_fail

T = TypeVar("T")
_NAMESPACES = Path("/run/netns")
_OUR_NAMESPACE = re.compile(r"pressroom-(\d+)-")
_CLONE_NEWNET = 0x40000000
_ARP = 0x0806
_LIBC = ctypes.CDLL(None, use_errno=True)


def require_namespaces() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, for network namespaces")
    for tool, package in (("ip", "iproute2"), ("iptables", "iptables")):
        if shutil.which(tool) is None:
            skip_or_fail(f"needs {tool} (Debian: {package})")
    name = f"pressroom-{os.getpid()}-probe"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode:
        pytest.skip("needs network namespaces (`ip netns add`)")
    _run("ip", "netns", "delete", name)


def _run(*words: str) -> str:
    process = subprocess.run(words, capture_output=True, text=True, check=False, timeout=20)
    assert process.returncode == 0, f"{' '.join(words)}: {process.stderr}"
    return process.stdout


@dataclass(eq=False)
class Host:
    """A simulated host: a network namespace with an address of its own."""

    name: str
    address: str
    namespace: str
    # The namespace of the bridge to which the host is connected.
    _hub: str
    # Additional environment variables for the processes of the host, for example to fake its clock.
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def prefix(self) -> tuple[str, ...]:
        """Return the beginning of a command line that runs another command on this host."""
        return "ip", "netns", "exec", self.namespace

    def do(self, *words: str) -> str:
        return _run(*self.prefix, *words)

    def inside(self, action: Callable[[], T]) -> T:
        """Call a function in the network namespace of this host.

        ``action`` must not start a process. To run a command on the host, use ``do``.
        """

        def enter() -> T:
            # ``setns`` changes the network namespace only for this thread, which ends after the
            # call.
            with (_NAMESPACES / self.namespace).open() as entrance:
                if _LIBC.setns(entrance.fileno(), _CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), "setns")
            return action()

        with ThreadPoolExecutor(1) as thread:
            return thread.submit(enter).result()

    def pids(self) -> set[int]:
        return set(map(int, _run("ip", "netns", "pids", self.namespace).split()))

    def unplug(self) -> None:
        _run("ip", "-n", self._hub, "link", "set", self.name, "down")

    def plug(self) -> None:
        _run("ip", "-n", self._hub, "link", "set", self.name, "up")

    def kill(self) -> None:
        """Kill all processes of the host.

        If ``unplug`` is called before ``kill``, as in a power failure, other hosts don't learn that
        their connections to this host are closed.
        """
        for pid in self.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def take(self, address: str) -> None:
        """Add an address to the host, and announce it in the network, as keepalived does."""
        _run("ip", "-n", self.namespace, "addr", "add", f"{address}/24", "dev", "eth0")
        self.inside(lambda: _announce(address))

    def block(self, other: "Host") -> None:
        """Silently drop each packet between the two hosts."""
        self._filter("-I", other)

    def unblock(self, other: "Host") -> None:
        self._filter("-D", other)

    def _filter(self, action: str, other: "Host") -> None:
        self.do("iptables", "-w", action, "OUTPUT", "-d", other.address, "-j", "DROP")
        self.do("iptables", "-w", action, "INPUT", "-s", other.address, "-j", "DROP")


@dataclass(frozen=True)
class Network:
    """A bridge that connects simulated hosts.

    The first address of the subnet belongs to the machine that runs the test.
    """

    tag: str
    subnet: str

    @property
    def hub(self) -> str:
        return f"{self.tag}-hub"

    def address(self, number: int) -> str:
        return f"{self.subnet}.{number}"

    def add(self, name: str, number: int) -> Host:
        host = Host(name, self.address(number), f"{self.tag}-{name}", self.hub)
        _run("ip", "netns", "add", host.namespace)
        cable = ("type", "veth", "peer", "name", name, "netns", self.hub)
        _run("ip", "link", "add", "eth0", "netns", host.namespace, *cable)
        for words in (
            ("addr", "add", f"{host.address}/24", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
            ("link", "set", "lo", "up"),
        ):
            _run("ip", "-n", host.namespace, *words)
        _run("ip", "-n", self.hub, "link", "set", name, "master", "bridge", "up")
        return host

    def create(self) -> None:
        _run("ip", "netns", "add", self.hub)
        _run("ip", "-n", self.hub, "link", "add", "bridge", "type", "bridge")
        _run("ip", "-n", self.hub, "link", "set", "bridge", "up")
        outer_end = _name_outer_end(self.tag)
        cable = ("type", "veth", "peer", "name", "outside", "netns", self.hub)
        _run("ip", "link", "add", outer_end, *cable)
        _run("ip", "addr", "add", f"{self.subnet}.1/24", "dev", outer_end)
        _run("ip", "link", "set", outer_end, "up")
        _run("ip", "-n", self.hub, "link", "set", "outside", "master", "bridge", "up")


@contextmanager
def open_network() -> Iterator[Network]:
    _remove_abandoned_networks()
    used_addresses = _run("ip", "-4", "-o", "addr")
    numbers = ((os.getpid() + step) % 250 for step in range(250))
    subnet = next(f"10.213.{n}" for n in numbers if f" 10.213.{n}." not in used_addresses)
    network = Network(f"pressroom-{os.getpid()}", subnet)
    try:
        network.create()
        yield network
    finally:
        _remove(network.tag)


def _announce(address: str) -> None:
    """Announce by ARP (RFC 5227, section 3) on eth0 that this host now has the address."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as connection:
        connection.bind(("eth0", 0))
        hardware_address = connection.getsockname()[4]
        ip_address = socket.inet_aton(address)
        ethernet = b"\xff" * 6 + hardware_address + struct.pack("!H", _ARP)
        request = struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1)
        connection.send(ethernet + request + hardware_address + ip_address + bytes(6) + ip_address)


def _remove_abandoned_networks() -> None:
    matches = map(_OUR_NAMESPACE.match, _list_namespaces())
    for tag in {f"pressroom-{match[1]}" for match in matches if match}:
        if not Path(f"/proc/{tag.removeprefix('pressroom-')}").exists():
            _remove(tag)


def _remove(tag: str) -> None:
    # Delete the virtual cable (veth pair) between this machine and the network. Linux deletes the
    # virtual cables between namespaces together with the namespaces. ``ip link delete`` may fail,
    # because the virtual cable may already be deleted.
    delete_cable = ["ip", "link", "delete", _name_outer_end(tag)]
    subprocess.run(delete_cable, capture_output=True, check=False)
    for name in _list_namespaces():
        if name.startswith(f"{tag}-"):
            for pid in _run("ip", "netns", "pids", name).split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            _run("ip", "netns", "delete", name)


def _name_outer_end(tag: str) -> str:
    """Return the name of the network interface that connects this machine to the network.

    Linux allows at most 15 characters in the name of a network interface.
    """
    return f"pr{tag.rpartition('-')[2]}"


def _list_namespaces() -> list[str]:
    return [each.name for each in _NAMESPACES.iterdir()] if _NAMESPACES.exists() else []
