"""Tests of the tables that commands print."""

import os
import pty
import subprocess
import sys
from datetime import UTC, datetime

import pytest

from cli.output import print_records

ORDER_ID = 3087206659863155
JOB_KIND = "subscriptions.import"
LONG_TITLE = "A title of many words, which has no room on a narrow terminal " * 3
PRINT_PROGRAM = (
    "from cli.output import print_records\n"
    f"print_records([{{'id': {ORDER_ID}, 'kind': '{JOB_KIND}', 'title': '{LONG_TITLE}'}}],"
    " as_json=False)"
)


def test_piped_table_has_one_line_per_row() -> None:
    process = subprocess.run(
        [sys.executable, "-c", PRINT_PROGRAM],
        env={**os.environ, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=True,
    )
    [row] = [line for line in process.stdout.splitlines() if str(ORDER_ID) in line]
    assert JOB_KIND in row
    assert LONG_TITLE.strip() in row
    assert len(process.stdout.splitlines()) == 5


@pytest.mark.parametrize("columns", [30, 60, 80])
def test_narrow_terminal_table_breaks_no_word(columns: int) -> None:
    lines = _print_on_terminal(columns).splitlines()
    [row] = [line for line in lines if str(ORDER_ID) in line]
    assert JOB_KIND in row
    words = " ".join(line.split("│")[-2].strip() for line in lines if line.startswith("│"))
    assert words.split() == LONG_TITLE.split()


def _print_on_terminal(columns: int) -> str:
    controller_fd, terminal_fd = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm"}
    process = subprocess.Popen(
        [sys.executable, "-c", PRINT_PROGRAM], stdout=terminal_fd, env=environment
    )
    os.close(terminal_fd)
    output = b""
    while True:
        try:
            piece = os.read(controller_fd, 65536)
        except OSError:  # The process has closed the terminal.
            break
        if not piece:
            break
        output += piece
    os.close(controller_fd)
    assert process.wait() == 0
    return output.decode()


def test_printed_table_removes_control_characters_from_untrusted_text(
    capsys: pytest.CaptureFixture[str],
) -> None:
    hostile_title = "[red]x[/red]\x1b[2J\x07\u202eback\nnext"
    print_records([{"title": hostile_title, "at": datetime(2026, 1, 2, tzinfo=UTC)}], as_json=False)
    output = capsys.readouterr().out
    assert "[red]x[/red]" in output
    assert not {"\x1b", "\x07", "\u202e"} & set(output)
    assert "back next" in output
    assert "2026-01-02 00:00:00" in output
