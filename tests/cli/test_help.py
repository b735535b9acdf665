import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from cli import command_reference
from cli.main import GROUPS, app, load_command
from devstack.harness.stack import Stack
from tests.support.commands.running import ended, ended_process
from tests.support.documents.markdown import ROOT

# A script calls commands by the hundred, and half of a command's time was this.


pytestmark = pytest.mark.slow

OF_OTHER_SERVERS = {
    *("celery", "kombu", "amqp", "redis", "minio", "urllib3", "httpx2", "opentelemetry"),
    *("fastapi", "starlette", "uvicorn"),
}
# The classes of all tables and what maps them, what checks an address, what hashes a password.
OF_CHANGES = {"models", "sqlalchemy.orm", "email_validator", "argon2"}
# What they do is with objects, with messages, or with other people's servers.
MORE_THAN_THE_DATABASE = {"import", "export", "backup", "doctor", "listen"}
LOADED = "\nprint(*(name for name, module in sys.modules.items() if module), file=sys.stderr)"
COMMANDS = """
import sys
from cli.main import main
for line in sys.argv[1:]:
    sys.argv = ["pressroom", *line.split(), "--json"]
    try:
        main()
    except SystemExit as end:
        assert end.code == 0"""


def loaded_by(code: str, *words: str, **environment: str) -> set[str]:
    """The modules that a new process has loaded at the end of these statements."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}{LOADED}", *words],
        env={"PATH": "/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stderr.splitlines()[-1].split())


def test_database_command_modules_import_no_libraries_of_other_servers() -> None:
    names = GROUPS.keys() - MORE_THAN_THE_DATABASE
    modules = {GROUPS[name].source.partition(":")[0] for name in names}
    loaded = loaded_by(f"import cli.main, {', '.join(sorted(modules))}")
    assert modules <= loaded
    assert loaded & OF_OTHER_SERVERS == set()


def test_warnings_of_libraries_are_hidden_at_log_level_error() -> None:
    code = """
import logging
from core.log_output import configure_logging
from core.settings.store_settings import LogSettings
for level in ("error", "debug"):
    configure_logging(LogSettings(log_level=level))
    for name in ("urllib3.connectionpool", "httpx2"):
        logging.getLogger(name).warning("%s at %s", name, level)
        logging.getLogger(name).info("a URL")"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "at error" not in done.stderr
    assert done.stderr.count("at debug") == 2
    assert "a URL" not in done.stderr


def test_logging_loads_structlog_without_rich() -> None:
    loaded = loaded_by("import core.logging")
    assert "structlog" in loaded
    assert "rich" not in loaded


def test_running_database_commands_loads_no_libraries_of_other_servers(stack: Stack) -> None:
    commands = ("lists list", "jobs list", "oauth-clients list")
    loaded = loaded_by(COMMANDS, *commands, **stack.environment)
    assert {"psycopg2", "cli.jobs"} <= loaded
    assert loaded & OF_OTHER_SERVERS == set()


def test_maintenance_command_loads_every_maintenance_task(stack: Stack) -> None:
    assert "workers.task_table" in loaded_by(
        COMMANDS, "maintenance objects.remove", **stack.environment
    )


def test_users_list_command_loads_no_library_for_changing_users(stack: Stack) -> None:
    loaded = loaded_by(COMMANDS, "users list", **stack.environment)
    assert "psycopg2" in loaded
    assert loaded & (OF_CHANGES | OF_OTHER_SERVERS) == set()


HEAVY = {"sqlalchemy", "celery", "kombu", "fastapi", "minio", "redis", "structlog"}


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["up", "--help"]])
def test_help_and_version_load_no_service_libraries(words: list[str]) -> None:
    shown = "import sys; from cli.main import main\ntry: main()\nfinally: print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", shown, *words], capture_output=True, text=True, check=True
    )
    assert "cli.main" in done.stdout
    assert HEAVY.isdisjoint(done.stdout.split())


@pytest.mark.parametrize("name", GROUPS)
def test_help_describes_each_command_group_as_its_module_does(name: str) -> None:
    root = typer.main.get_command(app)
    unloaded = root.commands[name]  # type: ignore[attr-defined] # typer's groups have it
    first, _, _ = load_command(unloaded).help.partition("\n\n")
    assert unloaded.help == " ".join(first.split())


def groups_below(group: Any, *words: str) -> Iterator[list[str]]:
    yield list(words)
    for name, each in group.commands.items():
        if hasattr(command := load_command(each), "commands"):
            yield from groups_below(command, *words, name)


def test_group_help_truncates_no_command_description() -> None:
    for words in groups_below(typer.main.get_command(app)):
        shown = CliRunner().invoke(app, [*words, "--help"], terminal_width=80).output
        commands = shown.partition("\n\nCommands:\n")[2]
        assert commands
        assert "..." not in commands


def test_version_command_prints_the_package_version() -> None:
    done = ended_process({}, "--version")
    assert (done.returncode, done.stdout) == (0, f"pressroom {version('pressroom')}\n")


def test_misspelt_command_group_gets_a_suggestion() -> None:
    done = ended({}, "user", "list")
    assert done.returncode == 2
    assert "Did you mean 'users'" in done.stderr


def test_shell_completion_offers_groups_commands_and_values() -> None:
    def completed(line: str) -> list[str]:
        words = line.split(" ")
        asked = {"_PRESSROOM_COMPLETE": "complete_bash", "COMP_WORDS": line}
        return ended({**asked, "COMP_CWORD": str(len(words) - 1)}).stdout.split()

    assert "users" in completed("pressroom us")
    assert {"create", "show", "password"} <= set(completed("pressroom users "))
    assert completed("pressroom users plan ann@example.com p") == ["paid"]


def test_command_reference_page_is_up_to_date() -> None:
    """If it is not: ``python -m cli.command_reference > docs/commands.md``."""
    assert (ROOT / "docs" / "commands.md").read_text() == command_reference.build_page()


def test_command_without_running_devstack_reports_the_missing_devstack(tmp_path: Path) -> None:
    done = ended({"PRESSROOM_HOME": str(tmp_path / "nothing")}, "users", "list")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"No stack runs on {tmp_path / 'nothing'}" in done.stderr
    assert "PRESSROOM_HOME" in done.stderr
    assert "Field required" not in done.stderr


def test_command_with_incomplete_settings_names_the_missing_ones(tmp_path: Path) -> None:
    half = {"PRESSROOM_HOME": str(tmp_path), "PRESSROOM_REDIS_URL": "redis://127.0.0.1:9/0"}
    done = ended(half, "users", "list")
    assert done.returncode == 2
    assert "PRESSROOM_DATABASE_URL: Field required" in done.stderr
