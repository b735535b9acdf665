import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from devstack.supervisor.home_folder import StackError
from devstack.supervisor.ports import PortPicker, is_listening, is_port_free, read_port_setting


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_error_for_occupied_port_names_port_setting_and_program(
    taken_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PORT", str(taken_port))
    with pytest.raises(StackError) as caught:
        read_port_setting("PORT", 8000)
    assert caught.value.exit_code == 2
    assert f"Port {taken_port} is taken" in str(caught.value)
    assert f"pid {os.getpid()}" in str(caught.value)
    assert "PORT=" in str(caught.value)


@pytest.mark.parametrize("text", ["http", "0", "65536", "-1", "80.5", "²"])
def test_invalid_port_setting_is_rejected(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOWER_PORT", text)
    with pytest.raises(StackError, match="FLOWER_PORT"):
        read_port_setting("FLOWER_PORT", 5555)


def test_port_is_detected_as_free_after_its_server_has_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not is_port_free(port)
    assert is_port_free(port)


def test_port_picker_reuses_the_ports_of_the_last_run_if_free(tmp_path: Path) -> None:
    file = tmp_path / "ports.json"
    first = PortPicker(file)
    ports = {first.pick("a"), first.pick("b")}
    first.store_choices()
    second = PortPicker(file)
    assert {second.pick("a"), second.pick("b")} == ports
    with socket.create_server(("127.0.0.1", first.chosen_ports["a"])):
        assert PortPicker(file).pick("a") != first.chosen_ports["a"]


def test_port_picker_returns_each_port_only_once(tmp_path: Path) -> None:
    picker = PortPicker(tmp_path / "ports.json")
    assert len({picker.pick(str(n)) for n in range(50)}) == 50


def test_only_the_listening_process_is_recognized_as_listening(taken_port: int) -> None:
    assert is_listening(os.getpid(), taken_port)
    server = "import socket, sys\nwith socket.create_server(('127.0.0.1', 0)) as server:\n"
    print_port = f"{server}    print(server.getsockname()[1], flush=True)\n    sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-S", "-c", print_port], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other_process:
        assert other_process.stdout
        port = int(other_process.stdout.readline())
        assert is_listening(other_process.pid, port)
        assert not is_listening(other_process.pid, taken_port)
    assert not is_listening(other_process.pid, port)
