"""Tests of ``make clients``, which builds Pressroom's API clients from a checkout."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from clients.generator.files import ROOT
from tests.support.clients.building import run_program

pytestmark = pytest.mark.tier("clients")


def test_checkout_builds_the_python_client_without_node_and_development_tools(
    tmp_path: Path,
) -> None:
    checkout = tmp_path / "checkout"
    files = subprocess.check_output(("git", "ls-files", "-z"), cwd=ROOT, text=True)
    for name in filter(None, files.split("\0")):
        if (ROOT / name).is_file():
            (checkout / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, checkout / name)
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("awk", "bash", "cp", "cut", "dirname", "make", "mkdir", "rm", "sh", "touch"):
        (programs / name).symlink_to(str(shutil.which(name)))
    run_program(
        *("make", "clients", "LANGUAGE=python", f"PYTHON={sys.executable}"),
        folder=checkout,
        environment={**os.environ, "PATH": str(programs)},
    )
    assert [*(checkout / "build" / "clients").glob("pressroom_client-*.whl")]
    assert not (checkout / ".venv" / "bin" / "mypy").exists()


def test_make_clients_rejects_an_unknown_language() -> None:
    process = subprocess.run(
        ("make", "clients", "LANGUAGE=ruby"), cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert process.returncode != 0
    assert "LANGUAGE must be python or typescript, not ruby." in process.stdout
