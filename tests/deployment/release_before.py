"""A release of before, run from the history of this repository beside the present one."""

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from devstack.supervisor.programs import answers
from tests.sizes import FULL
from tests.stack import Running, Stack

ROOT = Path(__file__).parents[2]
# The oldest release that is upgraded without a stop. Its database has the revision 0007.
OLDEST = "c014eceb9907917e1620b090c862e2079b7eca00"


def releases() -> list[str]:
    """The oldest release, and each that has a tag since; in the short form the newest of these."""
    command = ["git", "tag", "--contains", OLDEST, "--merged", "HEAD", "--sort=creatordate"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    tags = listed.stdout.split()
    return [OLDEST, *(tags if FULL else tags[-1:])]


def unpack(commit: str, folder: Path) -> None:
    """Lay out the files of a commit; the test is passed over where the history ends before it."""
    found = subprocess.run(
        ["git", "cat-file", "-e", commit], cwd=ROOT, capture_output=True, check=False
    )
    if found.returncode:
        pytest.skip(f"this copy of the repository does not reach back to {commit[:7]}")
    folder.mkdir()
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True)
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)


@dataclass(frozen=True)
class ReleaseBefore:
    """Programs of an older release, with the settings and the services of a stack.

    Such a release has one role for the database: the owner of the tables.
    """

    stack: Stack
    folder: Path

    def command(self, *words: str) -> Any:
        """What a command prints as JSON."""
        done = subprocess.run(
            [sys.executable, "-m", "cli.main", *words, "--json"],
            cwd=self.folder,
            env={**self.stack.environment, **self._own()},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout) if done.stdout.strip() else None

    @property
    def drains(self) -> bool:
        """Whether its API says that it is about to end; else an operator tells the proxy."""
        return (self.folder / "api/health/drain.py").exists()

    def start_api(self, port: int, **environment: str) -> Running:
        return self._start(
            "api-before",
            "serve",
            "--port",
            str(port),
            ready=lambda: answers(port, "/readyz"),
            **environment,
        )

    def start_worker(self, lane: str) -> Running:
        mark = self.stack.home / f"{lane}-before-{time.monotonic_ns()}.ready"
        return self._start(
            f"{lane}-before",
            "worker",
            "--lane",
            lane,
            "--concurrency",
            "1",
            ready=mark.exists,
            PRESSROOM_READY_FILE=str(mark),
        )

    def _start(self, name: str, *words: str, ready: Any, **environment: str) -> Running:
        return self.stack.start(
            name,
            *words,
            ready=ready,
            environment={**self._own(), **environment},
            directory=self.folder,
        )

    def _own(self) -> dict[str, str]:
        owner = self.stack.owner_url.replace("postgresql:", "postgresql+psycopg2:")
        return {"PRESSROOM_DATABASE_URL": owner}
