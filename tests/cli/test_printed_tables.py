import os
import pty
import subprocess
import sys
from datetime import UTC, datetime

import pytest

from cli.output import print_records

ORDER = 3087206659863155
KIND = "subscriptions.import"
TITLE = "A title of many words, which has no room on a narrow terminal " * 3
SHOWN = (
    "from cli.output import print_records\n"
    f"print_records([{{'id': {ORDER}, 'kind': '{KIND}', 'title': '{TITLE}'}}], as_json=False)"
)


def test_piped_table_has_one_line_per_row() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SHOWN],
        env={**os.environ, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=True,
    )
    [row] = [line for line in done.stdout.splitlines() if str(ORDER) in line]
    assert KIND in row
    assert TITLE.strip() in row
    assert len(done.stdout.splitlines()) == 5


@pytest.mark.parametrize("columns", [30, 60, 80])
def test_narrow_terminal_table_breaks_no_word(columns: int) -> None:
    lines = _on_a_terminal(columns).splitlines()
    [row] = [line for line in lines if str(ORDER) in line]
    assert KIND in row
    words = " ".join(line.split("│")[-2].strip() for line in lines if line.startswith("│"))
    assert words.split() == TITLE.split()


def _on_a_terminal(columns: int) -> str:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm"}
    process = subprocess.Popen([sys.executable, "-c", SHOWN], stdout=theirs, env=environment)
    os.close(theirs)
    read = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the other end was closed
            break
        if not piece:
            break
        read += piece
    os.close(ours)
    assert process.wait() == 0
    return read.decode()


def test_printed_table_removes_control_characters_from_untrusted_text(
    capsys: pytest.CaptureFixture[str],
) -> None:
    hostile = "[red]x[/red]\x1b[2J\x07\u202eback\nnext"
    print_records([{"title": hostile, "at": datetime(2026, 1, 2, tzinfo=UTC)}], as_json=False)
    shown = capsys.readouterr().out
    assert "[red]x[/red]" in shown
    assert not {"\x1b", "\x07", "\u202e"} & set(shown)
    assert "back next" in shown
    assert "2026-01-02 00:00:00" in shown
