import stat
from pathlib import Path

import pytest

from devstack.supervisor import home_folder
from devstack.supervisor.environment import build_program_environment, read_user_settings
from devstack.supervisor.home_folder import (
    Home,
    Lock,
    StackError,
    find_supervisor_pid,
    write_private,
    write_private_json,
)


@pytest.fixture
def new_home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.create()
    return home


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_devstack_home_and_secrets_are_readable_only_by_their_owner(new_home: Home) -> None:
    home_folder.load_or_create_secrets(new_home)
    assert mode(new_home.path) == 0o700
    assert mode(new_home.logs) == 0o700
    assert mode(new_home.secrets_file) == 0o600


def test_devstack_secrets_are_reused_and_unknown_secrets_are_kept(new_home: Home) -> None:
    first = home_folder.load_or_create_secrets(new_home)
    assert home_folder.load_or_create_secrets(new_home) == first
    new_home.secrets_file.write_text('{"valkey_password": "old", "of_a_newer_release": "x"}')
    second = home_folder.load_or_create_secrets(new_home)
    assert second.valkey_password == "old"
    assert second.postgres_password
    assert "of_a_newer_release" in new_home.secrets_file.read_text()


def test_damaged_devstack_secrets_are_never_replaced(new_home: Home) -> None:
    new_home.secrets_file.write_text('{"encryption_keys": "k1:')
    with pytest.raises(StackError, match="damaged"):
        home_folder.load_or_create_secrets(new_home)
    assert new_home.secrets_file.read_text() == '{"encryption_keys": "k1:'


def test_failed_private_file_write_keeps_the_old_file_and_no_temporary_file(new_home: Home) -> None:
    write_private_json(new_home.run_file, {"a": 1})
    with pytest.raises(UnicodeEncodeError):
        write_private(new_home.run_file, "\udcff")
    assert new_home.run_file.read_text() == '{\n  "a": 1\n}\n'
    assert {path.name for path in new_home.path.iterdir()} == {"logs", "work", "run.json"}


def test_error_for_unwritable_devstack_home_names_its_setting(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StackError, match="PRESSROOM_HOME") as caught:
        Home(tmp_path / "file" / "home").create()
    assert caught.value.exit_code == 2


def test_running_supervisor_is_recognized_only_by_its_file_lock(new_home: Home) -> None:
    assert find_supervisor_pid(new_home) is None
    lock = Lock(new_home.supervisor_lock)
    assert lock.acquire()
    lock.write_text("4711")
    assert find_supervisor_pid(new_home) == 4711
    assert not Lock(new_home.supervisor_lock).acquire()
    lock.close()
    assert new_home.supervisor_lock.read_text() == "4711"
    assert find_supervisor_pid(new_home) is None


def test_user_settings_override_the_devstack_even_if_read_from_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mail"
    file.write_text("smtp://mail.example.com\n")
    monkeypatch.setenv("PRESSROOM_MAIL_URL_FILE", str(file))
    monkeypatch.setenv("PRESSROOM_S3_BUCKET", "mine")
    chosen = {"PRESSROOM_MAIL_URL": "smtp://127.0.0.1:1", "PRESSROOM_S3_BUCKET": "ours"}
    environment = build_program_environment(chosen)
    assert environment["PRESSROOM_MAIL_URL"] == "smtp://mail.example.com"
    assert environment["PRESSROOM_S3_BUCKET"] == "mine"
    # Pressroom rejects a setting that has both a value and a file.
    assert "PRESSROOM_MAIL_URL_FILE" not in environment
    file.unlink()
    with pytest.raises(StackError, match=r"PRESSROOM_MAIL_URL_FILE: the file .* No such file"):
        read_user_settings()
