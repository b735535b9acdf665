"""A stack whose backups go into a folder of the test's own, and empty stacks to restore into."""

import base64
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import count
from pathlib import Path
from secrets import token_bytes

import pytest
from pydantic import SecretStr

from core.errors import DomainError
from core.errors.jobs import MAINTENANCE_RUNNING
from devstack.harness.embedded_services import Services, embedded_services
from devstack.harness.free_ports import free_port
from devstack.harness.opening import open_stack
from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from devstack.supervisor.environment import path_of_programs
from services.backup import creating
from services.backup.manifests import Manifest
from services.jobs import maintenance
from services.jobs.maintenance import MaintenanceWork
from storage.backup_files.places import SealedPlace, open_sealed_place
from storage.resources import Resources
from tests.support.stack.programs import TEST_PROGRAMS

BACKUP_KEYS = f"b1:{base64.urlsafe_b64encode(token_bytes(32)).decode()}"


@dataclass(frozen=True)
class Saved:
    """A stack, and where its backups go.

    Attributes:
        resources: with which our code makes backups and restores them, as the owner of the tables.
        environment: with which our commands do.
    """

    stack: Stack
    folder: Path
    resources: Resources
    environment: dict[str, str]

    @property
    def place(self) -> SealedPlace:
        return open_sealed_place(self.resources.settings, max_wait_seconds=0.0)

    def create(self) -> Manifest:
        made: list[Manifest] = []

        def work(began_at: datetime) -> None:
            made.append(creating.create(self.resources, self.place, began_at))

        self.run(work)
        return made[0]

    def run(self, work: MaintenanceWork) -> None:
        """As the maintenance that makes backups, once a worker's own look has ended."""

        def has_run() -> bool:
            try:
                maintenance.run_now(self.resources, creating.MAKE_BACKUP, work)
            except DomainError as error:
                if error.code != MAINTENANCE_RUNNING.code:
                    raise
                return False
            return True

        eventually(has_run, what="the end of another run")

    def files(self, folder: str = "") -> list[str]:
        found = (self.folder / folder).rglob("*")
        return sorted(str(each.relative_to(self.folder)) for each in found if each.is_file())


def saved(stack: Stack, folder: Path, **more: object) -> Saved:
    """The stack with backups in this folder, and with other settings."""
    owner = stack.owner_url.replace("postgresql:", "postgresql+psycopg2:", 1)
    updates = {
        "migration_database_url": SecretStr(owner),
        "backup_url": SecretStr(f"file://{folder}"),
        "backup_keys": SecretStr(BACKUP_KEYS),
        **more,
    }
    settings = stack.settings().model_copy(update=updates)
    environment = {
        "PRESSROOM_MIGRATION_DATABASE_URL": stack.owner_url,
        "PRESSROOM_BACKUP_URL": f"file://{folder}",
        "PRESSROOM_BACKUP_KEYS": BACKUP_KEYS,
    }
    return Saved(stack, folder, replace(stack.resources, settings=settings), environment)


@pytest.fixture(scope="package")
def own_services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """Services for these tests alone, which count all that is stored."""
    with embedded_services(tmp_path_factory.mktemp("backups")) as services:
        yield services


@pytest.fixture(scope="package")
def open_own(
    own_services: Services, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Stack]]:
    """Opens a stack; without tables, if `migrated` is false."""
    numbers = count(1)
    home = tmp_path_factory.mktemp("stacks")
    with ExitStack() as opened:

        def open_one(name: str, *, migrated: bool = True) -> Stack:
            number = next(numbers)
            stack = open_stack(
                own_services,
                home,
                f"{name}{number}",
                number,
                free_port(),
                migrated=migrated,
                programs=TEST_PROGRAMS,
            )
            return opened.enter_context(stack)

        yield open_one


@pytest.fixture(scope="package")
def shop(open_own: Callable[..., Stack]) -> Stack:
    return open_own("shop")


@pytest.fixture
def backups(shop: Stack, tmp_path: Path) -> Saved:
    return saved(shop, tmp_path / "backups")


@pytest.fixture(autouse=True)
def _with_the_programs_of_postgres(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", path_of_programs())
