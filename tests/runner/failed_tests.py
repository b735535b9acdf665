"""Records the failed tests of a test run in a file, so that `.ci/run` can repeat them once.

The environment variable ``PRESSROOM_FAILED_TESTS`` is the path of this JSON file. If the variable
is missing, nothing is recorded.
"""

import json
import os
from pathlib import Path

import pytest

RECORD_VARIABLE = "PRESSROOM_FAILED_TESTS"


class FailureRecorder:
    def __init__(self, record: Path) -> None:
        self._record = record
        self._reports: dict[str, list[str]] = {}

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._reports[report.nodeid] = [report.longreprtext]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            texts = [report.longreprtext, *(f"{title}\n{text}" for title, text in report.sections)]
            self._reports.setdefault(report.nodeid, []).extend(texts)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self._record.parent.mkdir(parents=True, exist_ok=True)
        summary = {"exit_status": int(exitstatus), "failed": list(self._reports)}
        self._record.write_text(json.dumps(summary, indent=1))
        blocks = (f"=== {node_id}\n" + "\n\n".join(t) for node_id, t in self._reports.items())
        self._record.with_suffix(".log").write_text("\n\n".join(blocks))


def pytest_configure(config: pytest.Config) -> None:
    # Only the main process writes the file: no worker of pytest-xdist, and no pytest run by a test.
    record = os.environ.pop(RECORD_VARIABLE, None)
    if record is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(FailureRecorder(Path(record)), "failure-recorder")
