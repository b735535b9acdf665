"""Tests that decision 17 lists exactly the optimizations that comments in the code name."""

import re

import pytest

from benchmarks.code_metrics.product_modules import PACKAGES
from tests.support.documents import markdown

pytestmark = pytest.mark.tier("check")

PAGE = markdown.ROOT / "docs" / "decisions" / "0017-speed-ups.md"
# Each table row of decision 17 starts with the name of an optimization and its source files.
ROW = re.compile(r"^\| ([^|]+) \| (`[^|]+`) \|", re.MULTILINE)
MARK = re.compile(r"# Optimization: (.+) \(decision 17\)\.$", re.MULTILINE)


def test_decision_17_lists_exactly_the_optimizations_marked_in_the_code() -> None:
    listed = {
        (name, file)
        for name, files in ROW.findall(PAGE.read_text())
        for file in re.findall(r"`([^`]+)`", files)
    }
    assert listed
    assert listed == marked_optimizations()


def marked_optimizations() -> set[tuple[str, str]]:
    """Return the name and the file of each comment `# Optimization: …` in the product's code."""
    files = [file for package in PACKAGES for file in (markdown.ROOT / package).rglob("*.py")]
    return {
        (name, str(file.relative_to(markdown.ROOT)))
        for file in files
        for name in MARK.findall(file.read_text())
    }
