"""Tests that hostile code in the image converter reaches nothing outside the converter process."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from structlog.testing import capture_logs

from devstack.harness.stack import Stack
from services.attachments.images.outcome import UnreadableImage
from services.attachments.isolation.converter import ConverterProcess
from tests.support.images.pictures import photo
from tests.support.security.hostile_child import CODE

pytestmark = pytest.mark.stack

ROOT = Path(__file__).parents[2]
PROGRAM = "/bin/true"
ESCAPE_ATTEMPTS = sorted(CODE.keys() - {"print", "crash"})
# The attacks that some containers and kernels prevent even without the restrictions of the
# converter.
NOT_POSSIBLE_EVERYWHERE = {"read the parent's memory", "trace a process", "hand over system calls"}


@contextmanager
def start_hostile_converter(*confinement: str) -> Iterator[ConverterProcess]:
    """Start an image converter like that of the worker, except that its child runs hostile code."""
    real_popen = subprocess.Popen

    def start_hostile_child(command: list[str], **options: Any) -> "subprocess.Popen[bytes]":
        assert command[1:3] == ["-m", "services.attachments.isolation.child"]
        hostile_command = [
            *command[:2],
            "tests.support.security.hostile_child",
            *command[3:],
            *confinement,
        ]
        return real_popen(hostile_command, **options)

    with ConverterProcess() as converter:
        with patch.object(subprocess, "Popen", start_hostile_child):
            converter.start()
        yield converter


@pytest.fixture(scope="module")
def confined_converter() -> Iterator[ConverterProcess]:
    """An image converter that runs hostile code under all restrictions of production."""
    with start_hostile_converter() as converter:
        yield converter


@pytest.fixture(scope="module")
def limited_converter() -> Iterator[ConverterProcess]:
    """An image converter that runs hostile code with resource limits as its only restriction."""
    with start_hostile_converter("limits") as converter:
        yield converter


@pytest.fixture(scope="module")
def unconfined_converter() -> Iterator[ConverterProcess]:
    """An image converter that runs hostile code without any restrictions."""
    with start_hostile_converter("open") as converter:
        yield converter


@pytest.fixture
def target_of(tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """A function that returns the port, socket, program or file that hostile code tries to use."""
    file = tmp_path / "file"
    address = tmp_path / "socket"
    file.write_text("as it was")
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as local:
        local.bind(str(address))
        local.listen()
        targets = {
            "connect over TCP": str(tcp.getsockname()[1]),
            "connect on this machine": str(address),
            "start a program": PROGRAM,
            "become a program": str(tmp_path / "missing"),
        }
        yield lambda code: targets.get(code, str(file))


def run_hostile_code(converter: ConverterProcess, code: str, target: str) -> str:
    """Run hostile code in the image converter, and return the error code of the conversion.

    ``code``: the name of the hostile code, a key of ``CODE``.
    """
    with pytest.raises(UnreadableImage) as error:
        converter.convert(json.dumps([code, target]).encode())
    return error.value.code


@pytest.mark.parametrize("code", ESCAPE_ATTEMPTS)
def test_code_injected_into_image_converter_reaches_nothing_outside(
    confined_converter: ConverterProcess, target_of: Callable[[str], str], code: str
) -> None:
    assert run_hostile_code(confined_converter, code, target_of(code)) == "EPERM"


@pytest.mark.parametrize(
    "code", [each for each in ESCAPE_ATTEMPTS if each not in NOT_POSSIBLE_EVERYWHERE]
)
def test_code_injected_into_unconfined_converter_does_reach_the_outside(
    unconfined_converter: ConverterProcess, target_of: Callable[[str], str], code: str
) -> None:
    expected = {"become a program": "ENOENT"}.get(code, "reached")
    assert run_hostile_code(unconfined_converter, code, target_of(code)) == expected


@pytest.mark.parametrize(
    "code",
    [
        *("read a file", "write a file", "make a file", "list a folder", "make a file in memory"),
        *("read the parent's environment", "read the parent's memory", "hold the parent"),
        *("connect over TCP", "connect on this machine"),
    ],
)
def test_converter_without_syscall_filter_still_cannot_open_files_or_sockets(
    limited_converter: ConverterProcess, target_of: Callable[[str], str], code: str
) -> None:
    assert run_hostile_code(limited_converter, code, target_of(code)) == "EMFILE"


def test_converter_process_inherits_only_its_pipes_and_no_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child runs without restrictions, because only root could inspect a restricted child."""
    monkeypatch.setenv("PRESSROOM_ENCRYPTION_KEYS", "do-not-pass-on")
    monkeypatch.setenv("PYTHONWARNINGS", "default")
    with (tmp_path / "secret").open("w") as secret:
        os.set_inheritable(secret.fileno(), True)
        with start_hostile_converter("open") as converter:
            assert (
                run_hostile_code(converter, "list a folder", str(tmp_path / "secret")) == "reached"
            )
            process = Path(f"/proc/{converter.pid}")
            links = {str(link.readlink()) for link in (process / "fd").iterdir()}
            assert (process / "environ").read_bytes() == b""
            files = {link for link in links if not link.startswith("pipe:")}
            assert files == {os.devnull, str(process / "statm")}


def test_converter_output_never_reaches_the_worker_log(
    confined_converter: ConverterProcess, capfd: pytest.CaptureFixture[str]
) -> None:
    for _ in range(20):
        assert run_hostile_code(confined_converter, "print", "a forged line\n" * 1_000) in {
            "reached",
            "EAGAIN",
        }
    assert capfd.readouterr() == ("", "")


def test_crash_log_contains_what_the_converter_printed() -> None:
    with start_hostile_converter() as converter, capture_logs() as logged:
        assert run_hostile_code(converter, "crash", "") == "image.crashed"
    (record,) = logged
    assert (record["event"], record["cause"]) == ("converter.crashed", "exit status 1")
    assert "ZeroDivisionError" in record["printed"]


# A program that tries to read the environment variables of its own fork, and of the processes whose
# pids are its arguments.
READ_ENVIRONMENTS = """
import os, pathlib, signal, sys
from tests.support.security.deprived import drop_capabilities
drop_capabilities()
copy = os.fork() or signal.pause()
for pid in (copy, *sys.argv[1:]):
    try:
        pathlib.Path(f"/proc/{pid}/environ").read_bytes()
        print("read")
    except PermissionError:
        print("refused")
os.kill(copy, signal.SIGKILL)
"""


@pytest.mark.tier("processes")
def test_worker_without_syscall_filters_warns_and_converts_and_hides_its_memory(
    make_stack: Callable[[str], Stack],
) -> None:
    stack = make_stack("deprived")
    stack.start_api()
    worker = stack.start_worker("media", module="tests.support.security.deprived")
    with stack.client(stack.create_owner().key) as client:
        for _ in range(2):
            reply = client.post("/attachments", files={"file": ("p.jpg", photo(64, 48))})
            assert reply.status_code == 200, reply.text
    lines = [line for line in worker.log.read_text().splitlines() if "converter." in line]
    assert len(lines) == 1
    assert "converter.unfiltered" in lines[0]
    pids = [worker.pid, *worker.children()]
    assert len(pids) >= 3
    command = [sys.executable, "-c", READ_ENVIRONMENTS, *map(str, pids)]
    completed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    assert completed.stdout.split() == ["read", *["refused"] * len(pids)]
