"""Settings of the object storage that only make sense together, or in one form."""

import os

import pytest

from core.settings import SettingsError, read_settings
from core.settings.store_settings import BucketSettings, ObjectStorageSettings


@pytest.fixture(autouse=True)
def endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PRESSROOM_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PRESSROOM_S3_ENDPOINT", "http://127.0.0.1:9000")


def test_the_endpoint_is_enough() -> None:
    found = read_settings(BucketSettings)
    assert found.s3_access_key is None
    assert found.s3_secret_key is None


@pytest.mark.parametrize(
    ("given", "named"),
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
def test_what_does_not_fit_is_named(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], named: str
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(f"PRESSROOM_S3_{name}", value)
    with pytest.raises(SettingsError) as raised:
        read_settings(BucketSettings)
    assert str(raised.value).startswith(f"PRESSROOM_{named}: ")
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize(
    "encryption", ["sse-s3", "sse-kms:alias/ours", "sse-kms:arn:aws:kms:x:1:key/2"]
)
def test_encryption_is_by_the_storages_key_or_by_a_named_one(
    monkeypatch: pytest.MonkeyPatch, encryption: str
) -> None:
    monkeypatch.setenv("PRESSROOM_S3_ENCRYPTION", encryption)
    assert read_settings(ObjectStorageSettings).s3_encryption == encryption
