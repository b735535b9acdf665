"""Tests the lines of the log when the disk is full."""

import json
import subprocess
import sys
from pathlib import Path

# Logs two records, then some that exceed the maximum size of the log file, and then two more. As on
# a full disk, the first record that doesn't fit is cut off.
PROGRAM = """
import os, resource
from core.log_output import configure_logging
from core.logging import get_logger
from core.settings.store_settings import LogSettings

configure_logging(LogSettings())
log = get_logger("test")
for number in range(2):
    log.warning("before", number=number)
_, hard_limit = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (os.fstat(2).st_size + 40, hard_limit))
for number in range(200):
    log.warning("full", number=number, text="x" * 100)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard_limit, hard_limit))
for number in range(2):
    log.warning("after", number=number)
"""


def test_only_one_log_line_is_cut_off_when_the_disk_is_full(tmp_path: Path) -> None:
    log = tmp_path / "api.log"
    with log.open("ab") as file:
        subprocess.run([sys.executable, "-c", PROGRAM], stderr=file, check=True)
    lines = [line for line in log.read_text().splitlines() if line]
    cut_line = lines.pop(2)
    assert len(cut_line) == 40
    records = [json.loads(line) for line in lines]
    assert [(record["event"], record["number"]) for record in records] == [
        ("before", 0),
        ("before", 1),
        ("after", 0),
        ("after", 1),
    ]
