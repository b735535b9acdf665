"""Tests of backups that are damaged or incomplete, or whose encryption key is missing."""

import base64
import dataclasses
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from secrets import token_bytes

import pytest
from pydantic import SecretStr

from core.errors import DomainError
from devstack.harness.embedded_services import Services
from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from services.backup import creating, manifests, restoring
from services.jobs.lease import LeaseLost
from storage.backup_files.places import FolderPlace
from tests.support.stack.backups import Backups, open_backups

pytestmark = pytest.mark.stack

NEW_KEY = f"b2:{base64.urlsafe_b64encode(token_bytes(32)).decode()}"


def error_message(code: str, action: Callable[[], object]) -> str:
    with pytest.raises(DomainError) as raised:
        action()
    assert raised.value.code == code, raised.value
    return raised.value.message


@pytest.fixture
def stack_without_tables(open_separate_stack: Callable[..., Stack]) -> Stack:
    return open_separate_stack("empty", migrated=False)


@pytest.mark.tier("faults")
def test_killed_backup_command_leaves_no_backup_listed_as_complete(
    backups: Backups, backup_services: Services
) -> None:
    backups.store_object()
    complete_backup = backups.create()
    known_files = set(backups.files("backups"))
    command = [sys.executable, "-m", "cli.main", "backup", "create"]
    environment = {**backups.stack.environment, **backups.environment}
    # Stop the object storage, so that the command can write the dump but not the objects.
    os.kill(backup_services.pids["s3"], signal.SIGSTOP)
    try:
        with subprocess.Popen(command, env=environment, start_new_session=True) as process:
            eventually(
                lambda: set(backups.files("backups")) > known_files, what="a piece of the dump"
            )
            os.killpg(process.pid, signal.SIGKILL)
    finally:
        os.kill(backup_services.pids["s3"], signal.SIGCONT)
    assert process.returncode == -signal.SIGKILL
    assert manifests.list_backup_ids(backups.place) == [complete_backup.id]
    later_backup = backups.create()
    assert manifests.list_backup_ids(backups.place) == [complete_backup.id, later_backup.id]


@pytest.mark.parametrize(
    "folder", ["manifests", "backups/*/database", "backups/*/objects", "objects", "journal"]
)
def test_backup_verification_detects_a_flipped_byte_in_any_file(
    backups: Backups, folder: str
) -> None:
    backups.store_object()
    manifest = backups.create()
    backups.place.put(f"journal/{manifests.format_timestamp(manifest.finished_at)}-test", b"[]")
    restoring.verify_backup(backups.resources, backups.place, manifest)
    damaged_file = next(
        each for each in sorted(backups.folder.glob(f"{folder}/**/*")) if each.is_file()
    )
    content = bytearray(damaged_file.read_bytes())
    content[len(content) // 2] ^= 1
    damaged_file.write_bytes(content)

    def verify() -> None:
        read_manifest = manifests.find_manifest(backups.place, manifest.id)
        restoring.verify_backup(backups.resources, backups.place, read_manifest)

    assert str(damaged_file.relative_to(backups.folder)) in error_message("backup.damaged", verify)


def test_backup_verification_detects_missing_and_swapped_files(backups: Backups) -> None:
    keys = sorted(backups.store_object() for _ in range(2))
    manifest = backups.create()
    first, second = (backups.folder / "objects" / key for key in keys)

    def verify() -> None:
        restoring.verify_backup(backups.resources, backups.place, manifest)

    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    assert keys[0] in error_message("backup.damaged", verify)
    first.unlink()
    assert "the file is missing" in error_message("backup.damaged", verify)
    first.write_bytes(content)
    verify()


@dataclass(frozen=True)
class LateLastPiece(FolderPlace):
    """A backup folder that withholds the dump's last piece until ``pg_restore`` waits for it."""

    last: str
    target: Stack

    def get(self, key: str) -> bytes:
        if key.endswith(self.last):
            query = (
                "SELECT 1 FROM pg_stat_activity WHERE datname = current_database()"
                " AND application_name = 'pg_restore'"
                " AND state_change < clock_timestamp() - interval '0.5 seconds'"
            )
            eventually(lambda: self.target.query(query), what="the wait for the last piece")
        return super().get(key)


def test_restore_of_incomplete_backup_leaves_the_database_empty(
    backups: Backups, stack_without_tables: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(creating, "PIECE_BYTES", 8 * 1024)
    # Add a large table, so that the last piece of the database dump contains table rows. Without
    # this table, most of the dump would consist of table definitions.
    backups.stack.query(
        "CREATE TABLE ballast AS SELECT md5(n::text) AS text FROM generate_series(1, 20000) AS n"
    )
    try:
        manifest = backups.create()
    finally:
        backups.stack.query("DROP TABLE ballast")
    target = open_backups(stack_without_tables, backups.folder)
    pieces = sorted((backups.folder / "backups" / manifest.id / "database").iterdir())
    content = pieces[-1].read_bytes()
    pieces[-1].write_bytes(content[:-1])
    late_place = LateLastPiece(backups.folder, f"database/{pieces[-1].name}", stack_without_tables)
    place = dataclasses.replace(target.place, place=late_place)
    error_message(
        "backup.damaged", lambda: restoring.restore_backup(target.resources, place, manifest)
    )
    assert stack_without_tables.query(
        "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
    ) == [(0,)]
    pieces[-1].write_bytes(content)
    restoring.restore_backup(target.resources, target.place, manifest)
    assert stack_without_tables.query("SELECT count(*) FROM users") == backups.stack.query(
        "SELECT count(*) FROM users"
    )


def test_backup_restore_rejects_a_database_that_is_not_empty(
    backups: Backups, stack_without_tables: Stack
) -> None:
    manifest = backups.create()
    stack_without_tables.query("CREATE TABLE somebody_elses (id int)")
    target = open_backups(stack_without_tables, backups.folder)
    error_message(
        "backup.target_in_use",
        lambda: restoring.restore_backup(target.resources, target.place, manifest),
    )
    assert stack_without_tables.query("SELECT relname FROM pg_class WHERE relname = 'users'") == []


def test_backup_restore_rejects_owner_and_application_roles_of_different_databases(
    backups: Backups, stack_without_tables: Stack
) -> None:
    manifest = backups.create()
    target = open_backups(stack_without_tables, backups.folder)
    live_url = {"database_url": backups.resources.settings.database_url}
    mixed_resources = dataclasses.replace(
        target.resources, settings=target.resources.settings.model_copy(update=live_url)
    )
    error_message(
        "backup.target_in_use",
        lambda: restoring.restore_backup(mixed_resources, target.place, manifest),
    )
    assert stack_without_tables.query("SELECT relname FROM pg_class WHERE relname = 'users'") == []


def test_backup_of_a_later_release_is_rejected(backups: Backups) -> None:
    manifest = dataclasses.replace(backups.create(), revision="9000", release="9.0.0")
    message = error_message(
        "backup.too_new",
        lambda: restoring.require_compatible_backup(manifest, backups.resources.settings),
    )
    assert "9.0.0" in message


def test_backup_from_unsupported_old_revision_is_rejected_by_restore_and_verify(
    backups: Backups, stack_without_tables: Stack
) -> None:
    manifest = dataclasses.replace(backups.create(), revision="0050", release="0.9.0")
    target = open_backups(stack_without_tables, backups.folder)
    for action in (restoring.restore_backup, restoring.verify_backup):
        message = error_message(
            "backup.too_old", partial(action, target.resources, target.place, manifest)
        )
        assert "Restore the backup with release" in message
    assert stack_without_tables.query("SELECT 1 FROM pg_tables WHERE schemaname = 'public'") == []


@pytest.mark.parametrize("setting", ["secret_keys", "encryption_keys"])
def test_backup_restore_names_the_secret_key_that_is_missing_or_differs(
    backups: Backups, setting: str
) -> None:
    manifest = backups.create()
    settings = backups.resources.settings
    [first, *_] = getattr(settings, setting).get_secret_value().split(",")
    key_id = first.partition(":")[0]

    def check_with_keys(keys: str) -> Callable[[], None]:
        changed_settings = settings.model_copy(update={setting: SecretStr(keys)})
        # Discard the cached keyrings of the copied settings, because these keyrings contain the
        # keys of the original settings.
        for ring in ("keyring", "encryption_keyring"):
            changed_settings.__dict__.pop(ring, None)
        return lambda: restoring.require_compatible_backup(manifest, changed_settings)

    message = error_message("backup.key_missing", check_with_keys(NEW_KEY))
    assert key_id in message
    assert f"PRESSROOM_{setting.upper()}" in message
    other_key = f"{key_id}:{NEW_KEY.partition(':')[2]}"
    assert key_id in error_message("backup.key_differs", check_with_keys(other_key))


def test_rotated_backup_keys_open_old_backups_and_a_missing_key_is_named(backups: Backups) -> None:
    manifest = backups.create()
    old_keys = backups.resources.settings.backup_keys
    assert old_keys is not None
    rotated = SecretStr(f"{NEW_KEY},{old_keys.get_secret_value()}")
    rotated_backups = open_backups(backups.stack, backups.folder, backup_keys=rotated)
    later_manifest = rotated_backups.create()
    assert [each.id for each in manifests.read_manifests(rotated_backups.place)] == [
        manifest.id,
        later_manifest.id,
    ]
    new_key_backups = open_backups(backups.stack, backups.folder, backup_keys=SecretStr(NEW_KEY))
    assert manifests.find_manifest(new_key_backups.place, later_manifest.id) == later_manifest
    assert "b1" in error_message(
        "backup.key_missing", lambda: manifests.find_manifest(new_key_backups.place, manifest.id)
    )


def test_wrong_backup_key_is_told_from_a_damaged_backup(backups: Backups) -> None:
    manifest = backups.create()
    other_key = SecretStr(f"b1:{NEW_KEY.partition(':')[2]}")
    other_backups = open_backups(backups.stack, backups.folder, backup_keys=other_key)

    def find_with(some: Backups) -> Callable[[], object]:
        return lambda: manifests.find_manifest(some.place, manifest.id)

    message = error_message("backup.key_differs", find_with(other_backups))
    assert "The key b1 in PRESSROOM_BACKUP_KEYS differs" in message
    path = backups.folder / manifests.MANIFESTS / manifest.id
    content = bytearray(path.read_bytes())
    # Damage the file's key, which is encrypted with the backup key.
    content[30] ^= 1
    path.write_bytes(content)
    error_message("backup.damaged", find_with(backups))
    # Backups of earlier releases have no file with the fingerprint.
    shutil.rmtree(backups.folder / "keys")
    message = error_message("backup.damaged", find_with(other_backups))
    assert "or PRESSROOM_BACKUP_KEYS has another key with the same id" in message


def test_backup_that_loses_its_lease_is_not_listed(backups: Backups) -> None:
    """While the backup's process was suspended, another process started to create a backup."""

    def work(began_at: datetime) -> None:
        backups.stack.query(
            "UPDATE maintenance SET last_started_at = now(), attempt = attempt + 1 WHERE name = %s",
            creating.CREATE_BACKUP.name,
        )
        creating.create_backup(backups.resources, backups.place, began_at)

    with pytest.raises(LeaseLost):
        backups.run(work)
    assert manifests.list_backup_ids(backups.place) == []
    assert backups.files("backups")


def test_backup_files_are_unreadable_without_the_key_and_contain_no_secret_keys(
    backups: Backups,
) -> None:
    email = backups.stack.create_owner().email
    manifest = backups.create()
    all_bytes = b"".join((backups.folder / name).read_bytes() for name in backups.files())
    for secret in (email, manifest.revision, "credit_entries", "imports/"):
        assert secret.encode() not in all_bytes
    settings = backups.resources.settings
    # Decrypt all files of the backup with the backup key, and require that the files contain none
    # of Pressroom's other keys.
    decrypted = b"".join(backups.place.get(name) for name in backups.files())
    for keys in (settings.secret_keys, settings.encryption_keys):
        for entry in keys.get_secret_value().split(","):
            raw_key = base64.urlsafe_b64decode(entry.partition(":")[2] + "==")
            assert raw_key not in decrypted
