"""Tests of the table in CONTRIBUTING.md that leads from a subject to its files."""

import re

import pytest

from tests.support.repository.tracked_files import ROOT

pytestmark = pytest.mark.tier("check")


@pytest.fixture(scope="module")
def named_paths() -> set[str]:
    """The paths in all rows. The head of a column is the folder in which its paths start."""
    section = (ROOT / "CONTRIBUTING.md").read_text().partition("## Where things are")[2]
    table = section.partition("\n## ")[0]
    head, _, *rows = [line.split("|")[2:-1] for line in table.splitlines() if line.startswith("|")]
    assert len(rows) >= 12
    return {
        folder.strip(" `") + path
        for row in rows
        for folder, cell in zip(head, row, strict=True)
        for path in re.findall(r"`([^`]+)`", cell)
    }


def test_subject_table_names_only_existing_files(named_paths: set[str]) -> None:
    assert {path for path in named_paths if not (ROOT / path).exists()} == set()


def test_subject_table_names_every_route_module_and_every_area(named_paths: set[str]) -> None:
    routes = {path for path in (ROOT / "api" / "routes").glob("*.py") if path.stem != "__init__"}
    folders = ("api/routes", "api/pages", "api/console", "services")
    areas = {path.parent for folder in folders for path in (ROOT / folder).glob("*/__init__.py")}
    required = {path.relative_to(ROOT).as_posix() for path in routes | areas}
    missing = {path for path in required if not any(name.startswith(path) for name in named_paths)}
    assert missing == set()
