import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from pydantic import SecretStr

from core.errors import DomainError, TransientError
from core.keyring import Keyring
from core.settings import Settings, SettingsError
from devstack.harness.free_ports import free_port
from devstack.harness.stack import Stack
from storage.backup_files.places import (
    BackupPlace,
    FolderPlace,
    SealedPlace,
    open_place,
    retry_transient_errors,
)
from storage.objects import ObjectMissing
from tests.support.commands.running import pressroom
from tests.support.stack.given_settings import Load

FILE_NAMES = ["a/b/c", "a/b/d", "a/c", "a0", "b"]
CONTENT_TYPE = "application/octet-stream"


def settings_with_backup_url(stack: Stack, url: str) -> Settings:
    return stack.settings().model_copy(update={"backup_url": SecretStr(url)})


def bucket_url(stack: Stack, prefix: str) -> str:
    """Return the URL of a folder in the stack's bucket.

    The URL contains the host name ``localhost`` instead of the configured host, because Pressroom
    refuses to store backups in the bucket that is backed up.
    """
    settings = stack.settings()
    assert settings.s3_access_key is not None
    assert settings.s3_secret_key is not None
    access_key = settings.s3_access_key
    secret_key = settings.s3_secret_key.get_secret_value()
    server = f"localhost:{settings.s3_endpoint.port}"
    keys = f"{quote(access_key, safe='')}:{quote(secret_key, safe='')}"
    return f"http://{keys}@{server}/{settings.s3_bucket}/{prefix}"


@pytest.fixture(params=["folder", "bucket"])
def backup_place(request: pytest.FixtureRequest, stack: Stack, tmp_path: Path) -> BackupPlace:
    """An empty place for backups, which is a local folder or a prefix in an S3 bucket."""
    urls = {
        "folder": lambda: f"file://{quote(str(tmp_path / 'back ups'))}",
        "bucket": lambda: bucket_url(stack, f"places/{tmp_path.name}"),
    }
    return open_place(settings_with_backup_url(stack, urls[request.param]()))


def test_backup_place_lists_reads_overwrites_and_removes_files_in_byte_order(
    backup_place: BackupPlace,
) -> None:
    for name in reversed(FILE_NAMES):
        backup_place.put(name, name.encode(), CONTENT_TYPE)
    assert [each.key for each in backup_place.list_objects()] == FILE_NAMES
    assert [each.key for each in backup_place.list_objects("a/")] == ["a/b/c", "a/b/d", "a/c"]
    assert list(backup_place.list_objects("none/")) == []
    backup_place.put("b", b"again", CONTENT_TYPE)
    assert backup_place.get("b") == b"again"
    backup_place.remove("a/b/c", "missing/too", "a0")
    assert [each.key for each in backup_place.list_objects()] == ["a/b/d", "a/c", "b"]
    with pytest.raises(ObjectMissing):
        backup_place.get("a/b/c")


def test_backup_folder_lists_names_in_byte_order_including_slashes(tmp_path: Path) -> None:
    names = ["a-b/x", "a.b", "a/b", "a0"]
    for name in reversed(names):
        FolderPlace(tmp_path).put(name, b"", CONTENT_TYPE)
    assert [each.key for each in FolderPlace(tmp_path).list_objects()] == names


def test_half_written_backup_file_is_not_listed(tmp_path: Path) -> None:
    backup_place = FolderPlace(tmp_path)
    backup_place.put("a/b", b"whole", CONTENT_TYPE)
    (tmp_path / "a" / ".b.half").write_bytes(b"ha")
    assert [each.key for each in backup_place.list_objects()] == ["a/b"]


@pytest.mark.parametrize("name", ["../out", "a/../../out", "/etc/passwd", "a//b", ".hidden"])
def test_backup_file_name_cannot_escape_the_backup_folder(tmp_path: Path, name: str) -> None:
    backup_place = FolderPlace(tmp_path / "backups")
    with pytest.raises(TransientError):
        backup_place.put(name, b"x", CONTENT_TYPE)
    with pytest.raises(TransientError):
        backup_place.remove(name)
    assert [each.name for each in tmp_path.rglob("*") if each.is_file()] == []


@pytest.mark.parametrize("unusable_path", ["file", "file/x", "file/x/y"])
def test_backup_location_below_a_regular_file_is_rejected_immediately(
    tmp_path: Path, unusable_path: str
) -> None:
    (tmp_path / "file").write_text("no folder")
    backup_place = SealedPlace(
        FolderPlace(tmp_path / unusable_path), Keyring.parse(f"b1:{'A' * 43}")
    )
    calls: list[Callable[[], object]] = [
        lambda: backup_place.put("a/b", b"x"),
        lambda: backup_place.get("a/b"),
        lambda: list(backup_place.list_objects("a/")),
    ]
    for call in calls:
        with pytest.raises(DomainError, match="Not a directory") as raised:
            call()
        assert raised.value.code == "backup.folder_unusable"
        assert str(tmp_path / unusable_path) in raised.value.message


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_backup_folder_without_write_permission_is_rejected_immediately(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(DomainError, match=os.strerror(number)):
        FolderPlace(tmp_path).put("a/b", b"x", CONTENT_TYPE)


def test_full_backup_folder_causes_a_transient_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(TransientError, match="backup folder can't be used"):
        FolderPlace(tmp_path).put("a/b", b"x", CONTENT_TYPE)


@pytest.mark.parametrize("action", ["list", "create"])
def test_backup_command_names_an_unusable_folder_without_a_traceback(
    stack: Stack, tmp_path: Path, action: str
) -> None:
    (tmp_path / "file").write_text("no folder")
    environment = {
        "PRESSROOM_BACKUP_URL": f"file://{tmp_path}/file/x",
        "PRESSROOM_BACKUP_KEYS": f"b1:{'A' * 43}",
    }
    completed = pressroom(stack, "backup", action, **environment)
    assert (completed.returncode, completed.stdout) == (1, "")
    assert f"{tmp_path}/file/x" in completed.stderr
    assert "Traceback" not in completed.stderr


def test_unreachable_backup_bucket_causes_a_transient_error(stack: Stack) -> None:
    backup_place = open_place(
        settings_with_backup_url(stack, f"http://key:secret@127.0.0.1:{free_port()}/bucket")
    )
    with pytest.raises(TransientError):
        backup_place.put("a", b"x", CONTENT_TYPE)


def test_backups_cannot_be_stored_in_the_bucket_that_they_protect(stack: Stack) -> None:
    settings = stack.settings()
    url = f"{settings.s3_endpoint}{settings.s3_bucket}/backups"
    with pytest.raises(SettingsError, match="PRESSROOM_BACKUP_URL"):
        open_place(settings_with_backup_url(stack, url))


@pytest.mark.parametrize(
    "url",
    [
        "s3://bucket/prefix",
        "file://host/folder",
        "file:relative",
        "https://key:secret@s3.example.com",
        "https://key:sec[ret@s3.example.com/bucket",
        "https://key:secret@s3.example.com:99999/bucket",
    ],
)
def test_invalid_backup_url_is_rejected_without_showing_its_secret(load: Load, url: str) -> None:
    with pytest.raises(SettingsError, match="PRESSROOM_BACKUP_URL") as raised:
        load(BACKUP_URL=url)
    assert "sec" not in str(raised.value).replace("secret-key", "")


def test_backup_keys_without_a_backup_url_are_rejected(load: Load) -> None:
    with pytest.raises(SettingsError, match="PRESSROOM_BACKUP_KEYS"):
        load(BACKUP_KEYS=f"b1:{'A' * 43}")


def test_backup_call_is_retried_for_a_limited_time_after_transient_errors() -> None:
    attempts: list[int] = []

    def fail_once() -> str:
        attempts.append(1)
        if len(attempts) < 2:
            raise TransientError("not now")
        return "done"

    assert retry_transient_errors(fail_once, 5.0) == "done"

    def fail_always() -> Any:
        raise TransientError("never")

    call: Callable[[], Any] = fail_always
    with pytest.raises(TransientError, match="never"):
        retry_transient_errors(call, 0.0)
