"""Tests that the tests named in docs/reliability.md and SECURITY.md exist."""

import re

import pytest

from tests.support.documents import markdown

pytestmark = pytest.mark.tier("check")

RELIABILITY = markdown.ROOT / "docs" / "reliability.md"
SECURITY = markdown.ROOT / "SECURITY.md"
PROMISE_COUNT = 42


def has_test(file: str, name: str) -> bool:
    path = markdown.ROOT / file
    return path.exists() and f"def {name}" in path.read_text()


def test_each_reliability_promise_names_existing_tests() -> None:
    text = RELIABILITY.read_text()
    numbers = re.findall(r"^\| (\d+) \| \S.* \| `[\w/]+\.py::", text, re.MULTILINE)
    assert numbers == [str(each) for each in range(1, PROMISE_COUNT + 1)]
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", text)
    assert [each for each in named if not has_test(f"tests/{each[0]}", f"{each[1]}(")] == []


def test_each_documented_threat_names_existing_tests() -> None:
    table = SECURITY.read_text().partition("## Threats")[2].partition("\n## ")[0]
    _, _, *rows = [line for line in table.splitlines() if line.startswith("|")]
    assert len(rows) > 10
    for row in rows:
        links = re.findall(r"\[(test_\w+\.py)\]\((tests/[\w/]+\.py)\)", row)
        assert links, row
        for name, path in links:
            assert path.endswith(f"/{name}"), row
            assert has_test(path, "test_"), row
