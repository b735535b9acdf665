"""Tests of the child process that reads a workbook: kills, timeouts and confinement."""

import io
import os
import signal
import threading
from contextlib import closing
from itertools import islice
from pathlib import Path

import pytest

from core.errors import MachineBusy, TransientError
from devstack.harness.polling import eventually
from services.subscriptions.imports.formats.formats import open_member_rows
from services.subscriptions.imports.formats.workbooks import workbook as workbook_module
from services.subscriptions.imports.formats.workbooks.workbook import Workbook
from tests.support.imports.workbooks import cell, open_workbook, package, sheet_xml, workbook

PEOPLE_SHEET = sheet_xml(
    '<row r="1">'
    + cell("A1", "email")
    + '</row><row r="2">'
    + cell("A2", "ann@example.com")
    + "</row>"
)


def build_large_workbook() -> bytes:
    rows = [["email"], *([f"m{number}@example.com"] for number in range(5_000))]
    return workbook({"Members": rows})


def kill_child(child: Workbook) -> None:
    pid = child.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    eventually(
        lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text(),
        what="the child's end",
    )


def test_import_whose_child_was_killed_is_retried() -> None:
    with closing(open_workbook(build_large_workbook())) as child:
        rows = iter(open_member_rows(child))
        assert len(list(islice(rows, 10))) == 10
        kill_child(child)
        with pytest.raises(TransientError, match="killed"):
            list(rows)


def test_import_whose_child_is_killed_while_it_gets_the_file_is_retried() -> None:
    data = package(
        PEOPLE_SHEET, parts={"media/picture.bin": os.urandom(3 * workbook_module.PIECE_BYTES)}
    )
    for pieces in (1, 2, 4):
        with closing(Workbook(io.BytesIO(data), len(data))) as child:
            steps = child.open()
            assert len(list(islice(steps, pieces))) == pieces
            kill_child(child)
            with pytest.raises(TransientError, match="killed"):
                list(steps)


def test_import_whose_child_is_killed_while_it_works_is_retried() -> None:
    with closing(open_workbook(build_large_workbook())) as child:
        pid = child.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        timer = threading.Timer(0.3, os.kill, (pid, signal.SIGKILL))
        timer.start()
        with pytest.raises(TransientError, match="killed"):
            list(open_member_rows(child))
        timer.join()


def test_child_that_sends_no_answer_is_killed_and_its_import_is_retried() -> None:
    with closing(open_workbook(build_large_workbook())) as child:
        child._child._wait_seconds = 1.0
        pid = child.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(MachineBusy):
            list(open_member_rows(child))
        assert not Path(f"/proc/{pid}").exists()


def test_child_of_a_workbook_is_confined() -> None:
    with closing(open_workbook(build_large_workbook())) as child:
        limits = Path(f"/proc/{child.pid}/limits").read_text().splitlines()
        status = Path(f"/proc/{child.pid}/status").read_text()
    values = {line[:26].strip(): line[26:].split()[:2] for line in limits}
    assert values["Max open files"] == ["0", "0"]
    assert values["Max processes"] == ["0", "0"]
    assert values["Max cpu time"] == ["120", "120"]
    assert values["Max address space"] == [str(1024**3)] * 2
    assert "Seccomp:\t2" in status
