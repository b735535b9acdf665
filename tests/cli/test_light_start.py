"""What a command loads: the libraries that it has a use for, and none of other servers.

A script calls commands by the hundred, and half of a command's time was this.
"""

import subprocess
import sys

import pytest

from cli.command_groups import GROUPS
from tests.stack import Stack

pytestmark = pytest.mark.slow

OF_OTHER_SERVERS = {
    *("celery", "kombu", "amqp", "redis", "minio", "urllib3", "httpx2", "opentelemetry"),
    *("fastapi", "starlette", "uvicorn"),
}
# The classes of all tables and what maps them, what checks an address, what hashes a password.
OF_CHANGES = {"models", "sqlalchemy.orm", "email_validator", "argon2"}
# What they do is with objects, with messages, or with other people's servers.
MORE_THAN_THE_DATABASE = {"import", "export", "upkeep", "backup", "doctor", "listen"}
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


def test_groups_of_the_database_load_no_library_of_other_servers() -> None:
    names = GROUPS.keys() - MORE_THAN_THE_DATABASE
    modules = {GROUPS[name].source.partition(":")[0] for name in names}
    loaded = loaded_by(f"import cli.main, {', '.join(sorted(modules))}")
    assert modules <= loaded
    assert loaded & OF_OTHER_SERVERS == set()


def test_a_library_of_logs_does_not_bring_one_of_terminals() -> None:
    loaded = loaded_by("import core.logging")
    assert "structlog" in loaded
    assert "rich" not in loaded


def test_commands_of_the_database_load_no_library_of_other_servers(stack: Stack) -> None:
    commands = ("lists list", "jobs list", "oauth-clients list")
    loaded = loaded_by(COMMANDS, *commands, **stack.environment)
    assert {"psycopg2", "cli.jobs"} <= loaded
    assert loaded & OF_OTHER_SERVERS == set()


def test_the_list_of_users_loads_nothing_that_only_a_change_of_one_needs(stack: Stack) -> None:
    loaded = loaded_by(COMMANDS, "users list", **stack.environment)
    assert "psycopg2" in loaded
    assert loaded & (OF_CHANGES | OF_OTHER_SERVERS) == set()
