import pytest
from minio.helpers import check_bucket_name

from core.settings import SettingsError, read_settings
from core.settings.store_settings import BackupSettings, BucketSettings, ObjectStorageSettings

INVALID_BUCKET_NAMES = [
    "b",
    "ab",
    "b" * 64,
    "press..room",
    "press.-room",
    "-x",
    "x-",
    "media/",
    "mediä",
    "192.168.5.4",
    "media-s3alias",
    "media--ol-s3",
]


@pytest.fixture(autouse=True)
def _set_endpoint(no_settings: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRESSROOM_S3_ENDPOINT", "http://127.0.0.1:9000")


def test_object_storage_requires_no_keys_besides_the_endpoint() -> None:
    settings = read_settings(BucketSettings)
    assert settings.s3_access_key is None
    assert settings.s3_secret_key is None


@pytest.mark.parametrize(
    ("variables", "invalid_name"),
    [
        ({"ACCESS_KEY": "a"}, "S3_SECRET_KEY"),
        ({"SECRET_KEY": "s"}, "S3_SECRET_KEY"),
        ({"ACCESS_KEY": "a", "SECRET_KEY": "s", "ADMIN_ACCESS_KEY": "a"}, "S3_ADMIN_SECRET_KEY"),
        ({"ACCESS_KEY": "a", "SECRET_KEY": "s", "ADMIN_SECRET_KEY": "s"}, "S3_ADMIN_SECRET_KEY"),
        ({"ADMIN_ACCESS_KEY": "a", "ADMIN_SECRET_KEY": "s"}, "S3_ADMIN_ACCESS_KEY"),
        ({"REGION": "eu west"}, "S3_REGION"),
        ({"ADDRESSING": "host"}, "S3_ADDRESSING"),
        ({"ENCRYPTION": "AES256"}, "S3_ENCRYPTION"),
        ({"ENCRYPTION": "sse-kms:"}, "S3_ENCRYPTION"),
        ({"KEYS_URL": "sts"}, "S3_KEYS_URL"),
    ],
)
def test_settings_error_names_the_invalid_s3_setting(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], invalid_name: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(f"PRESSROOM_S3_{name}", value)
    with pytest.raises(SettingsError) as raised:
        read_settings(BucketSettings)
    assert str(raised.value).startswith(f"PRESSROOM_{invalid_name}: ")
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize("bucket", INVALID_BUCKET_NAMES)
def test_s3_bucket_setting_rejects_names_that_s3_forbids(
    monkeypatch: pytest.MonkeyPatch, bucket: str
) -> None:
    monkeypatch.setenv("PRESSROOM_S3_BUCKET", bucket)
    with pytest.raises(SettingsError, match=r"^PRESSROOM_S3_BUCKET: a bucket name "):
        read_settings(ObjectStorageSettings)


@pytest.mark.parametrize("bucket", ["abc", "my_Media.2026", "1.2.3.4.5", "b" * 63])
def test_accepted_s3_bucket_name_passes_the_client_library_check(
    monkeypatch: pytest.MonkeyPatch, bucket: str
) -> None:
    monkeypatch.setenv("PRESSROOM_S3_BUCKET", bucket)
    check_bucket_name(read_settings(ObjectStorageSettings).s3_bucket, s3_check=True)


@pytest.mark.parametrize("bucket", [each for each in INVALID_BUCKET_NAMES if "/" not in each])
def test_backup_url_with_forbidden_bucket_name_is_rejected_without_showing_its_secret(
    monkeypatch: pytest.MonkeyPatch, bucket: str
) -> None:
    monkeypatch.setenv("PRESSROOM_DATABASE_URL", "postgresql://a:b@localhost/c")
    monkeypatch.setenv("PRESSROOM_BACKUP_KEYS", f"b1:{'A' * 43}")
    monkeypatch.setenv("PRESSROOM_BACKUP_URL", f"https://key:hidden@s3.example.com/{bucket}/daily")
    with pytest.raises(SettingsError, match=r"^PRESSROOM_BACKUP_URL: a bucket name") as raised:
        read_settings(BackupSettings)
    assert "hidden" not in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1
