"""Tests of the commands' help and completion, and of the modules that commands import."""

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
from tests.support.commands.running import run_command, run_command_process
from tests.support.documents.markdown import ROOT

pytestmark = pytest.mark.slow

# Libraries that a command must not import if it needs only the database, because the imports would
# double the command's duration.
SERVER_LIBRARIES = {
    *("celery", "kombu", "amqp", "redis", "minio", "urllib3", "httpx2", "opentelemetry"),
    *("fastapi", "starlette", "uvicorn"),
}
# Libraries that ``pressroom users`` needs only to create or change user accounts.
CHANGE_LIBRARIES = {"models", "sqlalchemy.orm", "email_validator", "argon2"}
# The groups of commands that use the object storage, the message broker or external servers.
GROUPS_WITH_OTHER_SERVERS = {"import", "export", "backup", "doctor", "listen"}
PRINT_LOADED_MODULES = (
    "\nprint(*(name for name, module in sys.modules.items() if module), file=sys.stderr)"
)
RUN_COMMANDS = """
import sys
from cli.main import main
for line in sys.argv[1:]:
    sys.argv = ["pressroom", *line.split(), "--json"]
    try:
        main()
    except SystemExit as end:
        assert end.code == 0"""


def list_loaded_modules(code: str, *arguments: str, **environment: str) -> set[str]:
    """Run Python code in a new process, and return the modules that the process has loaded."""
    process = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}{PRINT_LOADED_MODULES}", *arguments],
        env={"PATH": "/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(process.stderr.splitlines()[-1].split())


def test_database_command_modules_import_no_libraries_of_other_servers() -> None:
    names = GROUPS.keys() - GROUPS_WITH_OTHER_SERVERS
    modules = {GROUPS[name].source.partition(":")[0] for name in names}
    loaded = list_loaded_modules(f"import cli.main, {', '.join(sorted(modules))}")
    assert modules <= loaded
    assert loaded & SERVER_LIBRARIES == set()


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
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert "at error" not in process.stderr
    assert process.stderr.count("at debug") == 2
    assert "a URL" not in process.stderr


def test_logging_loads_structlog_without_rich() -> None:
    loaded = list_loaded_modules("import core.logging")
    assert "structlog" in loaded
    assert "rich" not in loaded


def test_running_database_commands_loads_no_libraries_of_other_servers(stack: Stack) -> None:
    commands = ("lists list", "jobs list", "oauth-clients list")
    loaded = list_loaded_modules(RUN_COMMANDS, *commands, **stack.environment)
    assert {"psycopg2", "cli.jobs"} <= loaded
    assert loaded & SERVER_LIBRARIES == set()


def test_maintenance_command_loads_every_maintenance_task(stack: Stack) -> None:
    assert "workers.task_table" in list_loaded_modules(
        RUN_COMMANDS, "maintenance objects.remove", **stack.environment
    )


def test_users_list_command_loads_no_library_for_changing_users(stack: Stack) -> None:
    loaded = list_loaded_modules(RUN_COMMANDS, "users list", **stack.environment)
    assert "psycopg2" in loaded
    assert loaded & (CHANGE_LIBRARIES | SERVER_LIBRARIES) == set()


HEAVY_LIBRARIES = {"sqlalchemy", "celery", "kombu", "fastapi", "minio", "redis", "structlog"}


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["up", "--help"]])
def test_help_and_version_load_no_service_libraries(arguments: list[str]) -> None:
    program = "import sys; from cli.main import main\ntry: main()\nfinally: print(*sys.modules)"
    process = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True
    )
    assert "cli.main" in process.stdout
    assert HEAVY_LIBRARIES.isdisjoint(process.stdout.split())


@pytest.mark.parametrize("name", GROUPS)
def test_help_describes_each_command_group_as_its_module_does(name: str) -> None:
    root = typer.main.get_command(app)
    group = root.commands[name]  # type: ignore[attr-defined] # typer's groups have it
    first_paragraph, _, _ = load_command(group).help.partition("\n\n")
    assert group.help == " ".join(first_paragraph.split())


def iterate_groups(group: Any, *parents: str) -> Iterator[list[str]]:
    yield list(parents)
    for name, subcommand in group.commands.items():
        if hasattr(command := load_command(subcommand), "commands"):
            yield from iterate_groups(command, *parents, name)


def test_group_help_truncates_no_command_description() -> None:
    for group_path in iterate_groups(typer.main.get_command(app)):
        help_text = CliRunner().invoke(app, [*group_path, "--help"], terminal_width=80).output
        commands = help_text.partition("\n\nCommands:\n")[2]
        assert commands
        assert "..." not in commands


def test_version_command_prints_the_package_version() -> None:
    process = run_command_process({}, "--version")
    assert (process.returncode, process.stdout) == (0, f"pressroom {version('pressroom')}\n")


def test_misspelt_command_group_gets_a_suggestion() -> None:
    process = run_command({}, "user", "list")
    assert process.returncode == 2
    assert "Did you mean 'users'" in process.stderr


def test_shell_completion_offers_groups_commands_and_values() -> None:
    def complete(line: str) -> list[str]:
        words = line.split(" ")
        environment = {"_PRESSROOM_COMPLETE": "complete_bash", "COMP_WORDS": line}
        return run_command({**environment, "COMP_CWORD": str(len(words) - 1)}).stdout.split()

    assert "users" in complete("pressroom us")
    assert {"create", "show", "password"} <= set(complete("pressroom users "))
    assert complete("pressroom users plan ann@example.com p") == ["paid"]


def test_command_reference_page_is_up_to_date() -> None:
    """Run ``python -m cli.command_reference > docs/commands.md`` to update docs/commands.md."""
    assert (ROOT / "docs" / "commands.md").read_text() == command_reference.build_page()


def test_command_without_running_devstack_reports_the_missing_devstack(tmp_path: Path) -> None:
    process = run_command({"PRESSROOM_HOME": str(tmp_path / "nothing")}, "users", "list")
    assert (process.returncode, process.stdout) == (2, "")
    assert f"No stack runs on {tmp_path / 'nothing'}" in process.stderr
    assert "PRESSROOM_HOME" in process.stderr
    assert "is required" not in process.stderr


def test_command_with_incomplete_settings_names_the_missing_ones(tmp_path: Path) -> None:
    incomplete_settings = {
        "PRESSROOM_HOME": str(tmp_path),
        "PRESSROOM_REDIS_URL": "redis://127.0.0.1:9/0",
    }
    process = run_command(incomplete_settings, "users", "list")
    assert process.returncode == 2
    assert "PRESSROOM_DATABASE_URL: is required" in process.stderr
