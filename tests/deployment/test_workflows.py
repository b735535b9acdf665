"""Tests of the workflows in `.github/workflows`."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.deployment import files
from tests.support.repository.schemas import require_valid

pytestmark = pytest.mark.tier("check")

RELEASE_SCRIPT = files.ROOT / ".ci" / "release"
WORKFLOWS = sorted((files.ROOT / ".github" / "workflows").iterdir())
# A URL, a host name, or an option that replaces the default registry of a tool.
HOST = re.compile(
    r"https?://|docker://(?!\$)|\b[\w-]+\.(?:io|org|com|net|dev)\b|docker login"
    r"|registry-url|repository-url|--registry|--repository|\bregistry:"
)
COMMIT_AND_VERSION = re.compile(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")


def test_workflows_follow_the_schema_of_github() -> None:
    require_valid("vendor.github-workflows", *map(str, WORKFLOWS))


def test_workflows_pin_each_action_by_its_commit_and_name_its_version() -> None:
    for workflow in WORKFLOWS:
        actions = re.findall(r"uses: (.*)", workflow.read_text())
        assert actions
        for action in actions:
            assert COMMIT_AND_VERSION.fullmatch(action), f"{workflow.name}: {action}"


def test_workflows_grant_read_access_unless_a_job_grants_more() -> None:
    for workflow in WORKFLOWS:
        assert yaml.safe_load(workflow.read_text())["permissions"] == {"contents": "read"}


def test_workflows_and_release_script_name_no_host() -> None:
    for file in (*WORKFLOWS, RELEASE_SCRIPT):
        assert not HOST.search(file.read_text()), file.name


def test_only_the_publishing_jobs_of_a_release_get_more_rights_and_need_a_login() -> None:
    jobs = read_release_jobs()
    assert {name for name, job in jobs.items() if "permissions" in job} == {"pypi", "npm", "github"}
    for name in ("pypi", "npm", "images"):
        assert jobs[name]["if"].startswith("vars."), name
        assert jobs[name]["needs"] == "build"


def test_images_are_not_pushed_without_a_login() -> None:
    [push] = [step for step in read_release_jobs()["images"]["steps"] if "run" in step]
    completed = subprocess.run(
        ["bash", "-e", "-c", push["run"]],
        check=False,
        capture_output=True,
        text=True,
        env={"IMAGE": "example/pressroom", "TAG": "v1.0.0", "IMAGE_USER": "", "IMAGE_TOKEN": ""},
    )
    assert completed.returncode == 0, completed.stderr
    assert "not pushed, because the secret IMAGE_TOKEN is missing" in completed.stdout


def test_release_check_refuses_a_tag_that_differs_from_the_version() -> None:
    completed = run_release_check(RELEASE_SCRIPT, tag="v999.0.0")
    assert completed.returncode == 1
    assert "the tag is v999.0.0, but pyproject.toml has the version" in completed.stderr


def test_release_check_refuses_a_tag_while_the_changelog_has_unreleased_changes(
    tmp_path: Path,
) -> None:
    script = tmp_path / ".ci" / "release"
    script.parent.mkdir()
    script.write_bytes(RELEASE_SCRIPT.read_bytes())
    (tmp_path / ".venv").symlink_to(sys.prefix)
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "9.8.7"\n')
    (tmp_path / "CHANGELOG.md").write_text(
        "## [Unreleased]\n\n- A change.\n\n## [9.8.7] - 2026-11-29\n"
    )
    completed = run_release_check(script, tag="v9.8.7")
    assert completed.returncode == 1
    assert "CHANGELOG.md lists changes in the section Unreleased" in completed.stderr


def run_release_check(script: Path, *, tag: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", script],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "TAG": tag},
        timeout=60,
    )


def read_release_jobs() -> dict[str, Any]:
    """Return the jobs of the release workflow by their names."""
    path = files.ROOT / ".github" / "workflows" / "release.yml"
    jobs: dict[str, Any] = yaml.safe_load(path.read_text())["jobs"]
    return jobs
