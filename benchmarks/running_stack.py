"""Starts a development stack in a temporary directory, as `make run` would do."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from devstack.supervisor.ports import PortPicker

_START_SECONDS = 120


@contextmanager
def running_stack() -> Iterator[dict[str, Any]]:
    with TemporaryDirectory(prefix="pressroom-bench-") as directory:
        home = Path(directory)
        try:
            yield start_stack(home)
        finally:
            stop_stack(home)


def start_stack(home: Path) -> dict[str, Any]:
    """Start a development stack, and return the content of its run.json."""
    picker = PortPicker(home / "benchmark-ports.json")
    ports = {"PORT": str(picker.pick("api")), "FLOWER_PORT": str(picker.pick("flower"))}
    _run_command(home, "up", "--detach", **ports)
    run: dict[str, Any] = json.loads((home / "run.json").read_text())
    return run


def stop_stack(home: Path) -> None:
    _run_command(home, "down")


def _run_command(home: Path, *words: str, **environment: str) -> None:
    # Ignore the user's Pressroom settings, because they may refer to services outside the
    # benchmark.
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PRESSROOM_")}
    subprocess.run(
        [sys.executable, "-m", "cli.main", *words],
        env=clean | environment | {"PRESSROOM_HOME": str(home)},
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=_START_SECONDS,
    )
