"""Tests of copying objects into backups, of due backups, and of removing old backups."""

import os
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from secrets import token_bytes

import pytest

from core import clock
from core.errors import DomainError
from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from services import removals
from services.backup import creating, manifests, restoring
from services.backup.manifests import Manifest
from tests.support.stack.backups import Backups, open_backups

pytestmark = pytest.mark.stack

ONE_DAY = timedelta(days=1)


def age_backup(backups: Backups, manifest: Manifest, age: timedelta) -> None:
    """Change the manifest of a backup, as if the backup were older by ``age``."""
    began_at = manifest.began_at - age
    manifests.write_manifest(backups.place, replace(manifest, began_at=began_at))


def age_copies(backups: Backups) -> None:
    """Make the copies in the backup two hours newer than the objects in the object storage."""
    later = clock.now().timestamp() + 7200
    for path in (backups.folder / "objects").rglob("*"):
        if path.is_file():
            os.utime(path, (later, later))


def test_error_without_any_complete_backup_names_the_backup_url_setting(
    backups: Backups, tmp_path: Path
) -> None:
    place = open_backups(backups.stack, tmp_path / "empty").place
    with pytest.raises(DomainError, match=r"no complete backup in PRESSROOM_BACKUP_URL\."):
        manifests.find_manifest(place, manifests.NEWEST)


def test_stored_object_is_copied_only_once_for_all_backups(backups: Backups) -> None:
    backups.store_object()
    first = backups.create()
    assert first.copied == first.objects > 0
    age_copies(backups)
    assert backups.create().copied == 0
    key = backups.store_object()
    third = backups.create()
    assert third.copied == 1
    assert key in set(creating.list_keys(backups.place, third))
    assert key not in set(creating.list_keys(backups.place, first))


def test_expired_backup_is_deleted_with_its_unshared_files(backups: Backups) -> None:
    removed_key = backups.store_object()
    kept_key = backups.store_object()
    old_backup = backups.create()
    age_backup(backups, old_backup, 10 * ONE_DAY)
    backups.stack.resources.objects.remove(removed_key)
    new_backup = backups.create()
    journal_files = [
        f"journal/{manifests.format_timestamp(moment)}-test"
        for moment in (
            new_backup.began_at - ONE_DAY,
            new_backup.began_at - timedelta(seconds=30),
            new_backup.finished_at,
        )
    ]
    for name in journal_files:
        backups.place.put(name, b"[]")
    # Add a file that a killed backup command has left behind.
    backups.place.put("backups/20200101T000000.000000Z-dead/database/000000", b"x")
    backups.run(
        lambda began_at: creating.prune_backups(backups.place, began_at - 3 * ONE_DAY).backups
    )
    assert manifests.list_backup_ids(backups.place) == [new_backup.id]
    files = backups.files()
    assert not [name for name in files if old_backup.id in name or "-dead" in name]
    assert f"objects/{kept_key}" in files
    assert f"objects/{removed_key}" not in files
    assert backups.files("journal") == journal_files[1:]
    assert restoring.verify_backup(backups.resources, backups.place, new_backup).faults == []


def test_newest_backup_is_kept_regardless_of_its_age(backups: Backups) -> None:
    backups.store_object()
    backup = backups.create()
    files_before = backups.files()
    pruned = creating.prune_backups(backups.place, clock.now() + ONE_DAY)
    assert (pruned.backups, pruned.files) == (0, 0)
    assert backups.files() == files_before
    assert manifests.find_manifest(backups.place, "newest") == backup


def test_backup_pruning_deletes_no_objects_while_a_kept_backup_is_unreadable(
    backups: Backups,
) -> None:
    backups.store_object()
    old_backup = backups.create()
    age_backup(backups, old_backup, 10 * ONE_DAY)
    new_backup = backups.create()
    [object_list] = (backups.folder / "backups" / new_backup.id / "objects").iterdir()
    object_list.write_bytes(b"")
    copies = backups.files("objects")
    with pytest.raises(DomainError, match="is damaged"):
        creating.prune_backups(backups.place, clock.now() - ONE_DAY)
    assert backups.files("objects") == copies


def test_maintenance_creates_a_backup_only_when_the_newest_is_too_old(backups: Backups) -> None:
    created_counts: list[int | None] = []

    def create_if_due(began_at: datetime) -> None:
        created_counts.append(creating.create_backup_if_due(backups.resources, began_at))

    for _ in range(2):
        backups.run(create_if_due)
    assert created_counts == [1, 0]
    manual_backups = open_backups(backups.stack, backups.folder, backup_hours=0)
    assert (
        creating.create_backup_if_due(manual_backups.resources, clock.now() + 2 * ONE_DAY) is None
    )
    # Maintenance may create a backup half an hour early, but not 40 minutes early.
    [first] = manifests.read_manifests(backups.place)
    early_time = first.began_at + timedelta(hours=23, minutes=20)
    assert creating.create_backup_if_due(backups.resources, early_time) == 0


def test_no_stored_object_is_removed_during_a_backup(backups: Backups) -> None:
    stack: Stack = backups.stack
    key = f"imports/{token_bytes(8).hex()}"
    stack.resources.objects.put(key, b"x", "application/octet-stream")

    def work(_: datetime) -> None:
        with stack.resources.unit_of_work() as uow:
            removals.forget_objects(uow, key)
        assert removals.process_due_removals(stack.resources) == 0
        assert stack.resources.objects.exists(key)

    backups.run(work)
    removals.process_due_removals(stack.resources)
    eventually(lambda: not stack.resources.objects.exists(key), what="the removal")
