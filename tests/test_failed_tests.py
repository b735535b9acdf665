"""Tests of `.ci/repeat_failed.py`, which repeats failed tests, in a small repository."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runner.failed_tests import RECORD_VARIABLE

ROOT = Path(__file__).parents[1]
CONFTEST = """
pytest_plugins = ["failed_tests"]
def pytest_addoption(parser):
    parser.addoption("--tier")
"""
TESTS = """
from pathlib import Path
import pytest
NUMBERS = [1]
def fail_once(name):
    marker = Path(__file__).with_name(name)
    if not marker.exists():
        marker.touch()
        raise AssertionError("unlucky")
@pytest.mark.parametrize("number", NUMBERS)
def test_flaky(number):
    fail_once(f"flaky {number}")
def test_stable():
    pass
"""
FLAKY = "test_flaky.py::test_flaky[1]"
TESTS_FAILED, INTERRUPTED = 1, 2


class Repository:
    """A git repository with one commit, which contains tests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.record = folder / "fast.json"
        self.repeated = folder / "repeated.txt"
        shutil.copy(ROOT / "tests" / "runner" / "failed_tests.py", folder)
        (folder / "conftest.py").write_text(CONFTEST)

    def commit(self, tests: str) -> None:
        (self.folder / "test_flaky.py").write_text(tests)
        author = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org")
        for arguments in (
            ("init", "--quiet"),
            ("add", "."),
            (*author, "commit", "--quiet", "--message", "Add tests"),
        ):
            subprocess.run(["git", *arguments], cwd=self.folder, check=True)

    def run_tests(self) -> None:
        """Run all tests, and record the failed ones."""
        self._run_python("-m", "pytest", **{RECORD_VARIABLE: str(self.record)})

    def repeat_failed(self) -> subprocess.CompletedProcess[str]:
        script = ROOT / ".ci" / "repeat_failed.py"
        return self._run_python(str(script), str(self.record), "fast", "HEAD")

    def _run_python(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        # Don't load pytest plugins, because loading them would take most of the time of the test.
        extra = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **variables}
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=os.environ | extra,
            check=False,
            capture_output=True,
            text=True,
        )


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def test_flaky_test_that_passes_when_repeated_is_listed_with_its_first_report(
    repository: Repository,
) -> None:
    repository.commit(TESTS)
    repository.run_tests()
    ended = repository.repeat_failed()
    assert ended.returncode == 0, ended.stdout
    assert "1 passed" in ended.stdout, "the tests that had passed run again"
    assert repository.repeated.read_text().splitlines() == [FLAKY]
    assert "unlucky" in repository.record.with_suffix(".log").read_text()


def test_repeated_test_that_fails_again_fails_the_run(repository: Repository) -> None:
    repository.commit(TESTS.replace("marker.touch()", "pass"))
    repository.run_tests()
    ended = repository.repeat_failed()
    assert ended.returncode == 1
    assert "1 failed" in ended.stdout
    assert not repository.repeated.exists()


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("[1]", "[1, 2]", f"the change adds or alters {FLAKY}"),
        ('"unlucky"', '"alas"', f"the change adds or alters {FLAKY}"),
        ("def test_flaky", "def test_shaky", f"the change adds or alters {FLAKY}"),
    ],
    ids=["parameters", "function that the test calls", "test"],
)
def test_failed_test_altered_by_the_change_is_not_repeated(
    repository: Repository, old: str, new: str, reason: str
) -> None:
    repository.commit(TESTS)
    (repository.folder / "test_flaky.py").write_text(TESTS.replace(old, new))
    record = {"exit_status": TESTS_FAILED, "failed": [FLAKY]}
    repository.record.write_text(json.dumps(record))
    ended = repository.repeat_failed()
    assert (ended.returncode, ended.stdout) == (1, f"No failed test is repeated: {reason}.\n")


def test_failed_test_next_to_an_altered_test_is_repeated(repository: Repository) -> None:
    repository.commit(TESTS)
    (repository.folder / "test_flaky.py").write_text(TESTS + "def test_new():\n    pass\n")
    (repository.folder / "flaky 1").touch()
    record = {"exit_status": TESTS_FAILED, "failed": [FLAKY]}
    repository.record.write_text(json.dumps(record))
    assert repository.repeat_failed().returncode == 0


@pytest.mark.parametrize(
    ("exit_status", "failed", "reason"),
    [
        (TESTS_FAILED, [f"a.py::test_{n}" for n in range(11)], "11 tests failed, more than 10"),
        (TESTS_FAILED, ["test_flaky.py"], "test_flaky.py could not be collected"),
        (INTERRUPTED, [FLAKY], "the run did not end by failed tests"),
        (TESTS_FAILED, [], "the run did not end by failed tests"),
    ],
)
def test_failures_that_chance_does_not_explain_are_not_repeated(
    repository: Repository, exit_status: int, failed: list[str], reason: str
) -> None:
    record = {"exit_status": exit_status, "failed": failed}
    repository.record.write_text(json.dumps(record))
    ended = repository.repeat_failed()
    assert (ended.returncode, ended.stdout) == (1, f"No failed test is repeated: {reason}.\n")
