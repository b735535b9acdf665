"""Tests of the installation by `make run`, with a pip that installs nothing."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.documents.markdown import ROOT

# A Python that prints what pip prints for each requirement, and ends with the code $EXIT_CODE.
_PYTHON = r"""#!/bin/bash
case "$*" in *--require-hashes*) ;; *) exit 0 ;; esac
[[ "$*" = *--quiet* ]] && exit "$EXIT_CODE"
for file in requirements.txt requirements-languages.txt requirements-devstack.txt; do
  sed -nE 's/^([a-z0-9].*==[^ ]*).*/Collecting \1 (from -r requirements)/p' $file
done
echo "Installing collected packages: everything"
exit "$EXIT_CODE"
"""


def install(folder: Path, exit_code: int) -> subprocess.CompletedProcess[str]:
    python = folder / "bin" / "python"
    python.parent.mkdir()
    python.write_text(_PYTHON)
    python.chmod(0o755)
    words = ("install", "REQUIREMENTS=requirements-devstack.txt", f"VENV={folder}")
    return subprocess.run(
        ["make", "--no-print-directory", *words],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "EXIT_CODE": str(exit_code)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_installation_counts_the_packages(tmp_path: Path) -> None:
    completed = install(tmp_path, 0)
    assert completed.returncode == 0, completed.stderr
    counts = [
        (int(count), int(total))
        for count, total in re.findall(r"(\d+) of (\d+) packages", completed.stdout)
    ]
    total = counts[0][1]
    assert counts == [(count, total) for count in range(10, total + 1, 10)]
    assert f"unpacking {total} packages" in completed.stdout


@pytest.mark.parametrize("exit_code", [1, 2])
def test_installation_fails_if_pip_fails(tmp_path: Path, exit_code: int) -> None:
    assert install(tmp_path, exit_code).returncode == 2
