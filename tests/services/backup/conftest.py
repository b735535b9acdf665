"""Fixtures for tests of backups: a stack that is backed up, and empty stacks for the restore."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

from devstack.harness.embedded_services import Services, embedded_services
from devstack.harness.free_ports import free_port
from devstack.harness.opening import open_stack
from devstack.harness.stack import Stack
from devstack.supervisor.environment import build_path
from tests.support.stack.backups import Backups, open_backups
from tests.support.stack.programs import TEST_PROGRAMS


@pytest.fixture(scope="package")
def backup_services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """Separate Postgres, Valkey and S3 servers, because a backup copies all data of its servers."""
    with embedded_services(tmp_path_factory.mktemp("backups")) as services:
        yield services


@pytest.fixture(scope="package")
def open_separate_stack(
    backup_services: Services, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Stack]]:
    """A function that opens a new stack on the servers of the backup tests.

    With ``migrated=False``, the database of the new stack has no tables.
    """
    numbers = count(1)
    home = tmp_path_factory.mktemp("stacks")
    with ExitStack() as open_stacks:

        def open_numbered_stack(name: str, *, migrated: bool = True) -> Stack:
            number = next(numbers)
            stack = open_stack(
                backup_services,
                home,
                f"{name}{number}",
                number,
                free_port(),
                migrated=migrated,
                programs=TEST_PROGRAMS,
            )
            return open_stacks.enter_context(stack)

        yield open_numbered_stack


@pytest.fixture(scope="package")
def backed_up_stack(open_separate_stack: Callable[..., Stack]) -> Stack:
    return open_separate_stack("shop")


@pytest.fixture
def backups(backed_up_stack: Stack, tmp_path: Path) -> Backups:
    """The backups of the stack ``backed_up_stack``, in a folder that is empty before each test."""
    return open_backups(backed_up_stack, tmp_path / "backups")


@pytest.fixture(autouse=True)
def _add_postgres_programs_to_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", build_path())
