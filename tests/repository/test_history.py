"""Tests of the commits in `.git-blame-ignore-revs` and of the numbers of decisions."""

import re

import pytest

from tests.support.prerequisites import skip_or_fail
from tests.support.repository.tracked_files import ROOT, run_git

pytestmark = pytest.mark.tier("check")

IGNORED_COMMIT = re.compile(r"^# (.+)\n([0-9a-f]{40})$", re.MULTILINE)
# A sentence of docs/README.md about a decision without a page.
REPLACED_DECISION = re.compile(r"decision (\d+) was (?:replaced by|merged into)\s+\[decision", re.I)


def test_commits_that_blame_ignores_exist_with_the_subject_in_the_comment() -> None:
    if run_git("rev-parse", "--is-shallow-repository").strip() == "true":
        skip_or_fail("A shallow clone lacks the commits of .git-blame-ignore-revs.")
    text = (ROOT / ".git-blame-ignore-revs").read_text()
    ignored = {commit: subject for subject, commit in IGNORED_COMMIT.findall(text)}
    hashes = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert hashes
    assert list(ignored) == hashes
    history = dict(line.split(" ", 1) for line in run_git("log", "--format=%H %s").splitlines())
    assert {commit: history.get(commit) for commit in ignored} == ignored


def test_each_decision_number_has_a_page_or_an_explanation() -> None:
    pages = {int(path.name[:4]) for path in (ROOT / "docs" / "decisions").glob("[0-9]*.md")}
    index = (ROOT / "docs" / "README.md").read_text().partition("## Decisions")[2]
    replaced = {int(number) for number in REPLACED_DECISION.findall(index)}
    assert pages | replaced == set(range(1, max(pages | replaced) + 1))
    assert not pages & replaced, "a number was used twice"
