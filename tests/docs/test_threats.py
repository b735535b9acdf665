"""Each threat that SECURITY.md names has its tests."""

import re

import pytest

from tests.docs import markdown

pytestmark = pytest.mark.check

PAGE = markdown.ROOT / "SECURITY.md"


def _rows() -> list[list[str]]:
    table = PAGE.read_text().partition("## Threats")[2].partition("\n## ")[0]
    lines = [line for line in table.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def test_the_threats_are_found() -> None:
    assert len(_rows()) > 10


@pytest.mark.parametrize("row", _rows(), ids=lambda row: row[1])
def test_each_threat_names_tests_that_exist(row: list[str]) -> None:
    at_stake, threat, defence, tests = row
    assert at_stake
    assert threat
    assert defence
    links = re.findall(r"\[(test_\w+\.py)\]\((tests/[\w/]+\.py)\)", tests)
    assert links, "it names no test"
    for name, path in links:
        assert path.rpartition("/")[2] == name
        assert "\ndef test_" in (markdown.ROOT / path).read_text()
