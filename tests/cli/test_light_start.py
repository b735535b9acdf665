"""What a command loads: the libraries that it has a use for, and none of other servers.

A script calls commands by the hundred, and half of a command's time was this.
"""

import subprocess
import sys

import pytest

from cli.command_groups import GROUPS
from tests.stack import Stack

OF_OTHER_SERVERS = {
    *("celery", "kombu", "amqp", "redis", "minio", "urllib3", "httpx2", "opentelemetry"),
    *("fastapi", "starlette", "uvicorn"),
}
# The classes of all tables and what maps them, what checks an address, what hashes a password.
OF_CHANGES = {"models", "sqlalchemy.orm", "email_validator", "argon2"}
# What they do is with objects, with messages, or with other people's servers.
MORE_THAN_THE_DATABASE = {"import", "export", "upkeep", "backup", "doctor", "listen"}
LOADED = (
    "\nfinally: print(*(name for name, module in sys.modules.items() if module), file=sys.stderr)"
)


def loaded_by(code: str, *words: str, **environment: str) -> set[str]:
    """The modules that a new process has loaded at the end of this statement."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\ntry: {code}{LOADED}", *words],
        env={"PATH": "/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize("name", sorted(GROUPS.keys() - MORE_THAN_THE_DATABASE))
def test_a_group_of_the_database_loads_no_library_of_other_servers(name: str) -> None:
    module = GROUPS[name].source.partition(":")[0]
    loaded = loaded_by(f"import cli.main, {module}")
    assert "cli" in loaded
    assert loaded & OF_OTHER_SERVERS == set()


def test_a_library_of_logs_does_not_bring_one_of_terminals() -> None:
    loaded = loaded_by("import core.logging")
    assert "structlog" in loaded
    assert "rich" not in loaded


@pytest.mark.parametrize("words", ["users list", "lists list", "jobs list", "oauth-clients list"])
def test_a_command_of_the_database_loads_no_library_of_other_servers(
    stack: Stack, words: str
) -> None:
    loaded = loaded_by(
        "from cli.main import main; main()", *words.split(), "--json", **stack.environment
    )
    assert "psycopg2" in loaded
    assert loaded & OF_OTHER_SERVERS == set()


def test_the_list_of_users_loads_nothing_that_only_a_change_of_one_needs(stack: Stack) -> None:
    loaded = loaded_by(
        "from cli.main import main; main()", "users", "list", "--json", **stack.environment
    )
    assert "psycopg2" in loaded
    assert loaded & OF_CHANGES == set()
