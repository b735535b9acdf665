"""The development stack as `make run` starts it, in a directory of the benchmark's own."""

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


def _pressroom(home: Path, *words: str, **environment: str) -> None:
    # Settings of whoever runs the benchmark must not lead it to their services.
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PRESSROOM_")}
    subprocess.run(
        [sys.executable, "-m", "cli.main", *words],
        env=clean | environment | {"PRESSROOM_HOME": str(home)},
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=_START_SECONDS,
    )


def up(home: Path) -> dict[str, Any]:
    """Start the stack and return what run.json says of it."""
    picker = PortPicker(home / "benchmark-ports.json")
    ports = {"PORT": str(picker.pick("api")), "FLOWER_PORT": str(picker.pick("flower"))}
    _pressroom(home, "up", "--detach", **ports)
    run: dict[str, Any] = json.loads((home / "run.json").read_text())
    return run


def down(home: Path) -> None:
    _pressroom(home, "down")


@contextmanager
def running_stack() -> Iterator[dict[str, Any]]:
    with TemporaryDirectory(prefix="pressroom-bench-") as directory:
        home = Path(directory)
        try:
            yield up(home)
        finally:
            down(home)
