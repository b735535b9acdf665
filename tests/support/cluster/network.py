"""Hosts on this one machine: network namespaces on a bridge, with links that a test can cut."""

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

from tests.support.prerequisites import pass_over

T = TypeVar("T")
_NAMESPACES = Path("/run/netns")
_OURS = re.compile(r"pressroom-(\d+)-")
_CLONE_NEWNET = 0x40000000
_ARP = 0x0806
_LIBC = ctypes.CDLL(None, use_errno=True)


def require_namespaces() -> None:
    """Pass the test over where this machine can't have hosts of its own."""
    if os.geteuid() != 0:
        pytest.skip("needs root, for network namespaces")
    for tool, package in (("ip", "iproute2"), ("iptables", "iptables")):
        if shutil.which(tool) is None:
            pass_over(f"needs {tool} (Debian: {package})")
    name = f"pressroom-{os.getpid()}-probe"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode:
        pytest.skip("needs network namespaces (`ip netns add`)")
    _run("ip", "netns", "delete", name)


def _run(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=20)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
    return done.stdout


@dataclass(eq=False)
class Host:
    """A machine of its own, as far as the network knows."""

    name: str
    address: str
    namespace: str
    # Where its cable ends.
    _hub: str
    # What its processes have in their environments beside their settings, such as another clock.
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def prefix(self) -> tuple[str, ...]:
        """The command that runs another one here."""
        return "ip", "netns", "exec", self.namespace

    def do(self, *words: str) -> str:
        return _run(*self.prefix, *words)

    def inside(self, action: Callable[[], T]) -> T:
        """Do it in the network of this host. It must start no process."""

        def enter() -> T:
            # A thread has a network of its own choice, and this one ends.
            with (_NAMESPACES / self.namespace).open() as entrance:
                if _LIBC.setns(entrance.fileno(), _CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), "setns")
            return action()

        with ThreadPoolExecutor(1) as thread:
            return thread.submit(enter).result()

    def pids(self) -> set[int]:
        return set(map(int, _run("ip", "netns", "pids", self.namespace).split()))

    def unplug(self) -> None:
        """From now on it hears nothing, and nothing hears it."""
        _run("ip", "-n", self._hub, "link", "set", self.name, "down")

    def plug(self) -> None:
        _run("ip", "-n", self._hub, "link", "set", self.name, "up")

    def kill(self) -> None:
        """All of its processes at once. No word of it leaves a host that was unplugged before."""
        for pid in self.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def take(self, address: str) -> None:
        """Answer to this address too, and tell the network so, as keepalived does."""
        _run("ip", "-n", self.namespace, "addr", "add", f"{address}/24", "dev", "eth0")
        self.inside(lambda: _announce(address))

    def cut_off(self, other: "Host") -> None:
        """Drop each packet between the two, without a word to either."""
        self._filter("-I", other)

    def reach(self, other: "Host") -> None:
        """Take ``cut_off`` back."""
        self._filter("-D", other)

    def _filter(self, action: str, other: "Host") -> None:
        self.do("iptables", "-w", action, "OUTPUT", "-d", other.address, "-j", "DROP")
        self.do("iptables", "-w", action, "INPUT", "-s", other.address, "-j", "DROP")


@dataclass(frozen=True)
class Network:
    """A bridge. The machine of the test is on it too, as the first of its addresses."""

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

    def lay(self) -> None:
        _run("ip", "netns", "add", self.hub)
        _run("ip", "-n", self.hub, "link", "add", "bridge", "type", "bridge")
        _run("ip", "-n", self.hub, "link", "set", "bridge", "up")
        ours = _outer_end(self.tag)
        cable = ("type", "veth", "peer", "name", "outside", "netns", self.hub)
        _run("ip", "link", "add", ours, *cable)
        _run("ip", "addr", "add", f"{self.subnet}.1/24", "dev", ours)
        _run("ip", "link", "set", ours, "up")
        _run("ip", "-n", self.hub, "link", "set", "outside", "master", "bridge", "up")


@contextmanager
def laid_network() -> Iterator[Network]:
    """A network that is gone at the end with all that runs in it, also after a failure."""
    _remove_those_of_the_dead()
    taken = _run("ip", "-4", "-o", "addr")
    numbers = ((os.getpid() + step) % 250 for step in range(250))
    subnet = next(f"10.213.{n}" for n in numbers if f" 10.213.{n}." not in taken)
    network = Network(f"pressroom-{os.getpid()}", subnet)
    try:
        network.lay()
        yield network
    finally:
        _remove(network.tag)


def _announce(address: str) -> None:
    """Say by ARP (RFC 5227, section 3) on eth0 that the address is here now."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as line:
        line.bind(("eth0", 0))
        here, ip = line.getsockname()[4], socket.inet_aton(address)
        ethernet = b"\xff" * 6 + here + struct.pack("!H", _ARP)
        request = struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1)
        line.send(ethernet + request + here + ip + bytes(6) + ip)


def _remove_those_of_the_dead() -> None:
    """Networks of test runs that were killed."""
    for tag in {f"pressroom-{match[1]}" for match in map(_OURS.match, _names()) if match}:
        if not Path(f"/proc/{tag.removeprefix('pressroom-')}").exists():
            _remove(tag)


def _remove(tag: str) -> None:
    """The other cables go with the ends that they have in the namespaces."""
    # Where none is left, there is nothing to remove.
    subprocess.run(["ip", "link", "delete", _outer_end(tag)], capture_output=True, check=False)
    for name in _names():
        if name.startswith(f"{tag}-"):
            for pid in _run("ip", "netns", "pids", name).split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            _run("ip", "netns", "delete", name)


def _outer_end(tag: str) -> str:
    """The name of our own end of the cable, which may have 15 letters."""
    return f"pr{tag.rpartition('-')[2]}"


def _names() -> list[str]:
    return [each.name for each in _NAMESPACES.iterdir()] if _NAMESPACES.exists() else []
