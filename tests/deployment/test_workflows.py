"""Tests of the workflows in `.github/workflows`."""

import re
import subprocess
from typing import Any

import pytest
import yaml

from tests.support.deployment import files
from tests.support.repository.schemas import require_valid

pytestmark = pytest.mark.tier("check")

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
    for file in (*WORKFLOWS, files.RELEASE_SCRIPT):
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


def read_release_jobs() -> dict[str, Any]:
    """Return the jobs of the release workflow by their names."""
    path = files.ROOT / ".github" / "workflows" / "release.yml"
    jobs: dict[str, Any] = yaml.safe_load(path.read_text())["jobs"]
    return jobs
