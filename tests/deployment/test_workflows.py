"""Tests of the workflows in `.github/workflows`."""

import re
import subprocess
import sys

import pytest
import yaml

from tests.support.deployment import files

pytestmark = pytest.mark.tier("check")

WORKFLOWS = sorted((files.ROOT / ".github" / "workflows").iterdir())
COMMIT_AND_VERSION = re.compile(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")


def test_workflows_follow_the_schema_of_github() -> None:
    argv = ["--builtin-schema", "vendor.github-workflows", *map(str, WORKFLOWS)]
    completed = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", *argv],
        check=False,
        capture_output=True,
        text=True,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr


def test_workflows_pin_each_action_by_its_commit_and_name_its_version() -> None:
    for workflow in WORKFLOWS:
        actions = re.findall(r"uses: (.*)", workflow.read_text())
        assert actions
        for action in actions:
            assert COMMIT_AND_VERSION.fullmatch(action), f"{workflow.name}: {action}"


def test_workflows_grant_read_access_unless_a_job_grants_more() -> None:
    for workflow in WORKFLOWS:
        assert yaml.safe_load(workflow.read_text())["permissions"] == {"contents": "read"}


def test_workflows_name_no_host() -> None:
    for workflow in WORKFLOWS:
        assert "://" not in workflow.read_text()
        assert not re.search(r"registry-url|repository-url|\bregistry:", workflow.read_text())
