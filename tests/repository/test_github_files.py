"""Tests of the issue forms, owners and dependency updates in `.github`."""

import re
from functools import cache
from typing import Any

import pytest
import yaml

from tests.support.repository.schemas import require_valid
from tests.support.repository.tracked_files import ROOT, list_tracked_files

pytestmark = pytest.mark.tier("check")

ISSUE_CONFIG = ".github/ISSUE_TEMPLATE/config.yml"
DEPENDABOT = ".github/dependabot.yml"
# Maps each package ecosystem, as Dependabot names it, to the files that pin package versions.
PINNED_FILES = {
    "pip": ["requirements*.txt"],
    "npm": ["**/package-lock.json"],
    "docker": ["**/Dockerfile"],
    "docker-compose": ["docker-compose.yml"],
    "github-actions": [".github/workflows/*"],
}


def test_issue_forms_follow_the_schema_of_github() -> None:
    forms = list_tracked_files(".github/ISSUE_TEMPLATE/*.yml") - {ISSUE_CONFIG}
    assert len(forms) >= 3
    require_valid("vendor.github-issue-forms", *sorted(forms))
    require_valid("vendor.github-issue-config", ISSUE_CONFIG)


def test_vulnerabilities_are_not_reported_as_issues() -> None:
    security = (ROOT / "SECURITY.md").read_text()
    [contact] = re.findall(r"security@([\w.]+\w)", security)
    [link] = yaml.safe_load((ROOT / ISSUE_CONFIG).read_text())["contact_links"]
    assert link["url"] == f"https://{contact}/SECURITY.html"
    assert "SECURITY.md" in (ROOT / ".github" / "ISSUE_TEMPLATE" / "bug.yml").read_text()


def test_dependabot_settings_follow_the_schema_of_github() -> None:
    require_valid("vendor.dependabot", DEPENDABOT)


def test_dependabot_updates_every_folder_with_pinned_versions() -> None:
    updates: list[dict[str, Any]] = yaml.safe_load((ROOT / DEPENDABOT).read_text())["updates"]
    folders = {
        update["package-ecosystem"]: set(update.get("directories") or [update["directory"]])
        for update in updates
    }
    assert set(folders) == set(PINNED_FILES)
    for ecosystem, patterns in PINNED_FILES.items():
        files = list_tracked_files(*patterns)
        # Dependabot itself looks for workflows in `.github/workflows`.
        pinned = {"/" if path.startswith(".github/") else find_pin_folder(path) for path in files}
        assert pinned <= folders[ecosystem], ecosystem
    for folder in set().union(*folders.values()):
        assert (ROOT / folder.lstrip("/")).is_dir(), folder


def test_every_line_of_codeowners_decides_about_a_file() -> None:
    deciding = set(find_deciding_patterns().values())
    assert [pattern for pattern, _ in read_codeowners() if pattern not in deciding] == []


def test_every_tracked_file_has_an_owner() -> None:
    assert list_tracked_files() - set(find_deciding_patterns()) == set()


def test_owners_are_addresses_that_no_stranger_can_have() -> None:
    for pattern, owner in read_codeowners():
        assert re.fullmatch(r"[a-z]+@pressroom\.example", owner), pattern


def find_pin_folder(path: str) -> str:
    return f"/{path.rpartition('/')[0]}"


def read_codeowners() -> list[tuple[str, str]]:
    """Return the pattern and the owner in each line of CODEOWNERS."""
    lines = (ROOT / ".github" / "CODEOWNERS").read_text().splitlines()
    pairs = [line.split() for line in lines if line and not line.startswith("#")]
    return [(pattern, owner) for pattern, owner in pairs]


@cache
def find_deciding_patterns() -> dict[str, str]:
    """Map each tracked file to the last pattern of CODEOWNERS that matches the file."""
    deciding = {}
    for pattern, _ in read_codeowners():
        # A pattern starts at the root. A pattern that ends in a slash matches all files below.
        assert pattern.startswith("/"), pattern
        glob = f"{pattern[1:]}**" if pattern.endswith("/") else pattern[1:]
        deciding.update(dict.fromkeys(list_tracked_files(glob), pattern))
    return deciding
