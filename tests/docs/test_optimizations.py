"""Decision 17 lists the optimizations that comments in the code mark, and no others."""

import re

import pytest

from benchmarks.house import PACKAGES
from tests.support.documents import markdown

pytestmark = pytest.mark.tier("check")

PAGE = markdown.ROOT / "docs" / "decisions" / "0017-speed-ups.md"
# A row of a table begins with the name of the optimization and the files that contain the mark.
ROW = re.compile(r"^\| ([^|]+) \| (`[^|]+`) \|", re.MULTILINE)
MARK = re.compile(r"# Optimization: (.+) \(decision 17\)\.$", re.MULTILINE)


def test_decision_17_lists_exactly_the_optimizations_that_the_code_marks() -> None:
    listed = {
        (name, file)
        for name, files in ROW.findall(PAGE.read_text())
        for file in re.findall(r"`([^`]+)`", files)
    }
    assert listed
    assert listed == marked_optimizations()


def marked_optimizations() -> set[tuple[str, str]]:
    """Return the name and the file of each mark in the product's code."""
    files = [file for package in PACKAGES for file in (markdown.ROOT / package).rglob("*.py")]
    return {
        (name, str(file.relative_to(markdown.ROOT)))
        for file in files
        for name in MARK.findall(file.read_text())
    }
