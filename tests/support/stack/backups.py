"""Helpers that back up a stack into a temporary folder."""

import base64
import json
import subprocess
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from secrets import token_bytes
from typing import Any

from pydantic import SecretStr

from core.errors import DomainError
from core.errors.jobs import MAINTENANCE_RUNNING
from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from services.backup import creating
from services.backup.manifests import Manifest
from services.jobs import maintenance
from services.jobs.maintenance import MaintenanceWork
from storage.backup_files.places import SealedPlace, open_sealed_place
from storage.resources import Resources
from tests.support.commands.running import run_command_process

BACKUP_KEYS = f"b1:{base64.urlsafe_b64encode(token_bytes(32)).decode()}"


@dataclass(frozen=True)
class Backups:
    stack: Stack
    folder: Path
    resources: Resources
    environment: dict[str, str]

    @property
    def place(self) -> SealedPlace:
        return open_sealed_place(self.resources.settings, max_wait_seconds=0.0)

    def create(self) -> Manifest:
        manifests: list[Manifest] = []

        def work(began_at: datetime) -> None:
            manifests.append(creating.create_backup(self.resources, self.place, began_at))

        self.run(work)
        return manifests[0]

    def run(self, work: MaintenanceWork) -> None:
        """Run a function as the backup maintenance, as soon as no worker runs this maintenance."""

        def has_run() -> bool:
            try:
                maintenance.run_now(self.resources, creating.CREATE_BACKUP, work)
            except DomainError as error:
                if error.code != MAINTENANCE_RUNNING.code:
                    raise
                return False
            return True

        eventually(has_run, what="the end of another run")

    def files(self, folder: str = "") -> list[str]:
        paths = (self.folder / folder).rglob("*")
        return sorted(str(path.relative_to(self.folder)) for path in paths if path.is_file())

    def store_object(self) -> str:
        """Store a random object in the stack's bucket, and return the key of the object."""
        key = f"imports/{token_bytes(8).hex()}/sealed/00000"
        self.stack.resources.objects.put(key, token_bytes(1000), "application/octet-stream")
        return key

    def run_command(self, *words: str) -> Any:
        """Run a `pressroom` command, and return its JSON output."""

        def run_unless_busy() -> subprocess.CompletedProcess[str] | None:
            environment = {**self.stack.environment, **self.environment}
            process = run_command_process(environment, *words, "--json")
            # The command fails while a worker briefly holds the lease to check if a backup is due.
            return None if "(maintenance.running)" in process.stderr else process

        process = eventually(run_unless_busy, what="the end of another run")
        assert isinstance(process, subprocess.CompletedProcess)
        assert process.returncode == 0, process.stderr
        return json.loads(process.stdout)


def open_backups(stack: Stack, folder: Path, **other_settings: object) -> Backups:
    """Return the backups of ``stack`` that are stored in ``folder``."""
    owner_url = stack.owner_url.replace("postgresql:", "postgresql+psycopg2:", 1)
    updates = {
        "migration_database_url": SecretStr(owner_url),
        "backup_url": SecretStr(f"file://{folder}"),
        "backup_keys": SecretStr(BACKUP_KEYS),
        **other_settings,
    }
    settings = stack.settings().model_copy(update=updates)
    environment = {
        "PRESSROOM_MIGRATION_DATABASE_URL": stack.owner_url,
        "PRESSROOM_BACKUP_URL": f"file://{folder}",
        "PRESSROOM_BACKUP_KEYS": BACKUP_KEYS,
    }
    return Backups(stack, folder, replace(stack.resources, settings=settings), environment)
