"""Tests the error of a development stack command if a package that the command needs is missing."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.support.documents.markdown import ROOT

PACKAGES_FOLDER = Path(sysconfig.get_path("purelib"))


@pytest.mark.parametrize(
    ("command", "missing_module"),
    [
        ("up", "psutil"),
        ("up", "py3langid"),
        ("down", "psutil"),
        ("status", "aiosmtpd"),
        ("reset", "psutil"),
    ],
)
def test_stack_command_without_the_extras_names_the_packages_to_install(
    command: str, missing_module: str, tmp_path: Path
) -> None:
    remaining_packages = tmp_path / "packages"
    remaining_packages.mkdir()
    for entry in PACKAGES_FOLDER.iterdir():
        if entry.name != missing_module:
            (remaining_packages / entry.name).symlink_to(entry)
    # The option -S hides the packages of the test environment.
    result = subprocess.run(
        [sys.executable, "-S", "-m", "cli.main", command],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PATH": os.defpath, "PYTHONPATH": f"{remaining_packages}{os.pathsep}{ROOT}"},
    )
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == (
        "The development stack needs more packages. "
        "Install Pressroom with the extras: 'pressroom[devstack,languages]'.\n"
    )
    assert not (tmp_path / ".pressroom").exists()
