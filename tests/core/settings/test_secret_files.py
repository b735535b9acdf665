from pathlib import Path

import pytest

from core.settings import Settings, SettingsError, load_settings, read_settings
from core.settings.given_settings import MAX_SECRET_BYTES, is_secret, variable_of
from core.settings.store_settings import DatabaseSettings, FlowerSettings, ObjectStorageSettings
from tests.support.deployment.files import required_names

pytestmark = pytest.mark.usefixtures("no_settings")

URL = "postgresql://u:p@localhost/db"


def test_every_secret_setting_can_be_read_from_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    values = {
        "database_url": URL,
        "migration_database_url": URL,
        "read_database_url": URL,
        "redis_url": "redis://localhost/0",
        "broker_url": "redis://localhost/2",
        "cache_url": "rediss://localhost/1",
        "secret_keys": "k1:" + "A" * 43,
        "encryption_keys": "k1:" + "A" * 43,
        "backup_url": "https://key:secret@s3.example.com/backups",
        "backup_keys": "k1:" + "A" * 43,
        "backup_database_url": URL,
        "mail_url": "smtp://mail.example.com",
        "metrics_token": "twenty characters...",
        "flower_password": "twenty characters...",
    }
    secrets = [name for name, field in Settings.model_fields.items() if is_secret(field)]
    assert values.keys() <= set(secrets)
    for name in secrets:
        file = tmp_path / name
        file.write_text(values.get(name, name) + "\n")
        monkeypatch.setenv(f"{variable_of(name)}_FILE", str(file))
    other_settings = {
        "S3_ENDPOINT": "http://localhost",
        "S3_ACCESS_KEY": "a",
        "PUBLIC_URL": "http://localhost",
        # Some secrets are accepted only together with another setting of the same service.
        "S3_ADMIN_ACCESS_KEY": "a",
        "TURNSTILE_SITE_KEY": "site",
        "HCAPTCHA_SITE_KEY": "site",
        "RECAPTCHA_SITE_KEY": "site",
        "PAYMENTS_SANDBOX_URL": "http://127.0.0.1:1",
    }
    for name, value in other_settings.items():
        monkeypatch.setenv(f"PRESSROOM_{name}", value)
    settings = load_settings.__wrapped__()
    for name in secrets:
        secret = getattr(settings, name).get_secret_value()
        assert secret.rpartition("://")[2] == values.get(name, name).rpartition("://")[2]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file or directory"),
        (b"", "it is empty"),
        (b"\n", "it is empty"),
        (b"\xff\xfe", "it is not valid UTF-8"),
        (b"x" * (MAX_SECRET_BYTES + 1), "it has more than 65536 bytes"),
    ],
)
def test_settings_error_names_unusable_secret_file_and_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes | None, reason: str
) -> None:
    file = tmp_path / "database"
    if content is not None:
        file.write_bytes(content)
    monkeypatch.setenv("PRESSROOM_DATABASE_URL_FILE", str(file))
    with pytest.raises(SettingsError) as raised:
        read_settings(DatabaseSettings)
    expected = f"PRESSROOM_DATABASE_URL_FILE: the file {file} can't be used: {reason}"
    assert str(raised.value) == expected


@pytest.mark.parametrize("content", ["", "\n"])
def test_empty_secret_file_counts_as_unset_for_optional_setting(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str
) -> None:
    file = tmp_path / "password"
    file.write_text(content)
    monkeypatch.setenv("PRESSROOM_REDIS_URL", "redis://localhost/0")
    monkeypatch.setenv("PRESSROOM_FLOWER_PASSWORD_FILE", str(file))
    assert read_settings(FlowerSettings).flower_password is None


def test_secret_set_both_directly_and_by_file_is_rejected(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "database"
    file.write_text(URL)
    monkeypatch.setenv("PRESSROOM_DATABASE_URL", URL)
    monkeypatch.setenv("PRESSROOM_DATABASE_URL_FILE", str(file))
    with pytest.raises(SettingsError, match="are both set; set only one of them") as raised:
        read_settings(DatabaseSettings)
    assert "u:p" not in str(raised.value)
    # An empty environment variable counts as unset, as for every setting.
    monkeypatch.setenv("PRESSROOM_DATABASE_URL", "")
    assert (
        read_settings(DatabaseSettings)
        .database_url.get_secret_value()
        .endswith("//u:p@localhost/db")
    )


@pytest.mark.parametrize(
    ("ending", "remaining_ending"), [("\n", ""), ("\r\n", ""), ("\n\n", "\n"), (" ", " ")]
)
def test_secret_file_loses_only_one_trailing_line_break(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ending: str, remaining_ending: str
) -> None:
    file = tmp_path / "database"
    file.write_bytes((URL + ending).encode())
    monkeypatch.setenv("PRESSROOM_DATABASE_URL_FILE", str(file))
    assert (
        read_settings(DatabaseSettings)
        .database_url.get_secret_value()
        .endswith("/db" + remaining_ending)
    )


def test_each_process_requires_only_the_settings_that_it_uses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PRESSROOM_DATABASE_URL", URL)
    assert read_settings(DatabaseSettings)
    monkeypatch.setenv("PRESSROOM_REDIS_URL", "redis://localhost/0")
    assert read_settings(FlowerSettings).flower_password is None
    with pytest.raises(SettingsError) as raised:
        read_settings(ObjectStorageSettings)
    missing = {line.partition(":")[0] for line in str(raised.value).splitlines()}
    assert missing == {"PRESSROOM_S3_ENDPOINT"}
    with pytest.raises(SettingsError) as raised:
        read_settings(Settings)
    missing = {line.partition(":")[0] for line in str(raised.value).splitlines()}
    assert missing == required_names() - {"PRESSROOM_DATABASE_URL"}
