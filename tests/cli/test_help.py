"""What the command says of itself, and how little it needs for that."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import typer

from cli import command_reference
from cli.command_groups import GROUPS, loaded
from cli.main import app
from tests.commands import ended, ended_process
from tests.docs.markdown import ROOT

pytestmark = pytest.mark.slow

HEAVY = {"sqlalchemy", "celery", "kombu", "fastapi", "minio", "redis", "structlog"}


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["up", "--help"]])
def test_help_imports_no_library_of_the_services(words: list[str]) -> None:
    shown = "import sys; from cli.main import main\ntry: main()\nfinally: print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", shown, *words], capture_output=True, text=True, check=True
    )
    assert "cli.main" in done.stdout
    assert HEAVY.isdisjoint(done.stdout.split())


@pytest.mark.parametrize("name", GROUPS)
def test_help_says_of_a_group_what_the_group_says(name: str) -> None:
    root = typer.main.get_command(app)
    unloaded = root.commands[name]  # type: ignore[attr-defined] # typer's groups have it
    first, _, _ = loaded(unloaded).help.partition("\n\n")
    assert unloaded.help == " ".join(first.split())


def test_the_version_is_that_of_the_package() -> None:
    done = ended_process({}, "--version")
    assert (done.returncode, done.stdout) == (0, f"pressroom {version('pressroom')}\n")


def test_a_word_that_is_nearly_a_group_is_corrected() -> None:
    done = ended({}, "user", "list")
    assert done.returncode == 2
    assert "Did you mean 'users'" in done.stderr


def test_a_shell_completes_groups_their_commands_and_values() -> None:
    def completed(line: str) -> list[str]:
        words = line.split(" ")
        asked = {"_PRESSROOM_COMPLETE": "complete_bash", "COMP_WORDS": line}
        return ended({**asked, "COMP_CWORD": str(len(words) - 1)}).stdout.split()

    assert "users" in completed("pressroom us")
    assert {"create", "show", "password"} <= set(completed("pressroom users "))
    assert completed("pressroom users plan ann@example.com p") == ["paid"]


def test_the_page_of_commands_is_that_of_the_commands() -> None:
    """If it is not: ``python -m cli.command_reference > docs/commands.md``."""
    assert (ROOT / "docs" / "commands.md").read_text() == command_reference.page()


def test_without_a_stack_a_command_says_so(tmp_path: Path) -> None:
    done = ended({"PRESSROOM_HOME": str(tmp_path / "nothing")}, "users", "list")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"No stack runs on {tmp_path / 'nothing'}" in done.stderr
    assert "PRESSROOM_HOME" in done.stderr
    assert "Field required" not in done.stderr


def test_settings_that_are_half_there_are_still_named(tmp_path: Path) -> None:
    half = {"PRESSROOM_HOME": str(tmp_path), "PRESSROOM_REDIS_URL": "redis://127.0.0.1:9/0"}
    done = ended(half, "users", "list")
    assert done.returncode == 2
    assert "PRESSROOM_DATABASE_URL: Field required" in done.stderr
