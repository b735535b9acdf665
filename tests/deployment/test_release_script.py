"""Tests of the script `.ci/release`, which `make release-check` and the release workflow run."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.deployment.files import RELEASE_SCRIPT
from tests.support.http.servers import silent_server
from tests.support.prerequisites import skip_or_fail

TAG = "v9.8.7"
LIMIT = "max_seconds=1800"
PYPROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "pressroom"
version = "9.8.7"
readme = {{ text = "A project with the name of the product.", content-type = "text/plain" }}
dependencies = [{dependencies}]

[project.scripts]
pressroom = "command:main"

[tool.setuptools]
py-modules = ["command"]
"""
COMMAND = """
def main():
    print("pressroom 9.8.7")
"""
CHANGELOG = "## [9.8.7] - 2026-11-29\n"
MAKEFILE = """
clients:
\tnpm install --prefix build pressroom-missing-package
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A copy of the script in a small project, whose package builds in a few seconds."""
    script = tmp_path / ".ci" / "release"
    script.parent.mkdir()
    script.write_bytes(RELEASE_SCRIPT.read_bytes())
    (tmp_path / ".venv").symlink_to(sys.prefix)
    (tmp_path / "pyproject.toml").write_text(PYPROJECT.format(dependencies=""))
    (tmp_path / "command.py").write_text(COMMAND)
    (tmp_path / "Makefile").write_text(MAKEFILE)
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    return script


@pytest.mark.tier("check")
def test_release_check_refuses_a_tag_that_differs_from_the_version() -> None:
    completed = run_release_check(RELEASE_SCRIPT, TAG="v999.0.0")
    assert completed.returncode == 1
    assert "the tag is v999.0.0, but pyproject.toml has the version" in completed.stderr


@pytest.mark.tier("check")
def test_release_check_refuses_a_tag_while_the_changelog_has_unreleased_changes(
    script: Path,
) -> None:
    changelog = script.parents[1] / "CHANGELOG.md"
    changelog.write_text(f"## [Unreleased]\n\n- A change.\n\n{CHANGELOG}")
    completed = run_release_check(script, TAG=TAG)
    assert completed.returncode == 1
    assert "CHANGELOG.md lists changes in the section Unreleased" in completed.stderr


@pytest.mark.tier("processes")
def test_release_check_stops_pip_if_the_package_index_never_responds(script: Path) -> None:
    project = script.parents[1] / "pyproject.toml"
    project.write_text(PYPROJECT.format(dependencies='"pressroom-missing-package"'))
    require_stopped_download(script, "pip install")


@pytest.mark.tier("processes")
def test_release_check_stops_npm_if_the_registry_never_responds(script: Path) -> None:
    if not shutil.which("node") or not shutil.which("npm"):
        skip_or_fail("the script builds the clients only with Node.js and npm")
    require_stopped_download(script, "make --no-print-directory clients")


def require_stopped_download(script: Path, command: str) -> None:
    """Fail unless the script stops the command when a registry doesn't respond."""
    text = script.read_text()
    assert LIMIT in text
    script.write_text(text.replace(LIMIT, "max_seconds=3"))
    with silent_server() as address:
        url = f"http://{address}"
        completed = run_release_check(
            script,
            TAG=TAG,
            PIP_INDEX_URL=url,
            NPM_CONFIG_REGISTRY=url,
            NPM_CONFIG_CACHE=str(script.parent),
        )
    assert completed.returncode == 1
    assert command in completed.stderr
    assert "took longer than 3 seconds. Perhaps a registry doesn't respond." in completed.stderr


def run_release_check(script: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", script],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
    )
