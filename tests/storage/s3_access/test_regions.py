"""Tests the settings for the region, the URL style and the encryption of the object storage."""

import socket

import pytest
from pydantic import AnyHttpUrl

from core.errors import ServerFailed, TransientError
from core.settings import Settings, SettingsError
from core.settings.store_settings import ObjectStorageSettings
from devstack.harness.stack import Stack
from storage.buckets import create_bucket
from storage.objects import ObjectMissing, ObjectStore
from tests.support.http.regional_server import BUCKET, DOMAIN, REGION, RegionalServer


def open_store(settings: Settings, **changes: object) -> ObjectStore:
    return ObjectStore(settings.model_copy(update=changes), connections=2)


def use_all_operations(objects: ObjectStore, prefix: str) -> None:
    """Call every operation of the object storage that Pressroom uses."""
    # The S3 client uploads this content in several calls, because it is too large for one call.
    large = bytes(range(256)) * 4096 * 7
    keys = [f"{prefix}/{name}" for name in ("a", "b", "ü ö", "large")]
    for key in keys:
        objects.put(key, large if key.endswith("large") else key.encode(), "text/plain")
    assert objects.get(keys[2]) == keys[2].encode()
    assert objects.get(keys[3]) == large
    assert b"".join(objects.stream(keys[3], offset=250, length=10)) == large[250:260]
    assert [each.key for each in objects.list_objects(f"{prefix}/")] == sorted(keys)
    assert objects.exists(keys[0])
    objects.remove(*keys, f"{prefix}/was-never-there")
    assert not objects.exists(keys[0])
    assert not list(objects.list_objects(f"{prefix}/"))
    with pytest.raises(ObjectMissing):
        objects.get(keys[0])


def test_object_storage_works_in_the_default_and_in_another_region(
    stack: Stack, regional_settings: Settings
) -> None:
    use_all_operations(open_store(stack.settings()), "everything")
    use_all_operations(open_store(regional_settings, s3_region=REGION), "everything")


@pytest.mark.parametrize("wrong_region", [None, "us-east-1", "eu-west-1"])
def test_wrong_s3_region_is_reported_with_its_setting_and_the_correct_region(
    regional_settings: Settings, wrong_region: str | None
) -> None:
    objects = open_store(regional_settings, s3_region=wrong_region)
    for call in (
        objects.has_bucket,
        objects.create_bucket,
        lambda: objects.put("x", b"x", "a/b"),
    ):
        with pytest.raises(TransientError, match=f"set PRESSROOM_S3_REGION to {REGION}"):
            call()


def test_missing_bucket_is_reported_with_its_setting(
    stack: Stack, regional_settings: Settings
) -> None:
    for settings in (stack.settings(), regional_settings):
        objects = open_store(settings, s3_bucket="pressroom-not-there", s3_region=REGION)
        assert not objects.has_bucket()
        with pytest.raises(TransientError, match="NoSuchBucket; check PRESSROOM_S3_BUCKET"):
            objects.put("x", b"x", "text/plain")


@pytest.mark.parametrize(
    ("wrong_field", "setting"),
    [("s3_access_key", "PRESSROOM_S3_ACCESS_KEY"), ("s3_secret_key", "PRESSROOM_S3_SECRET_KEY")],
)
def test_wrong_s3_keys_are_reported_with_their_setting(
    stack: Stack, wrong_field: str, setting: str
) -> None:
    settings = stack.settings()
    value = "wrong" if wrong_field == "s3_access_key" else type(settings.secret_keys)("wrong")
    with pytest.raises(TransientError, match=f"check {setting}"):
        open_store(settings, **{wrong_field: value}).has_bucket()


def test_bucket_is_created_in_its_configured_region(regional_settings: Settings) -> None:
    settings = regional_settings.model_copy(
        update={"s3_region": REGION, "s3_bucket": "made-elsewhere"}
    )
    for _ in range(2):
        create_bucket(settings)
    assert open_store(settings).has_bucket()


def test_bucket_command_names_the_wrong_region_setting(
    stack: Stack, regional_server: RegionalServer
) -> None:
    """Operators run `pressroom bucket` first, so this command must detect a wrong region."""
    environment = {
        "PRESSROOM_S3_ENDPOINT": regional_server.url,
        "PRESSROOM_S3_ACCESS_KEY": regional_server.known.access_key,
        "PRESSROOM_S3_SECRET_KEY": regional_server.known.secret_key,
        "PRESSROOM_S3_BUCKET": "made-by-the-command-elsewhere",
    }
    command = stack.start("bucket-elsewhere", "bucket", environment=environment)
    assert command.process.wait(30) == 1
    assert f"set PRESSROOM_S3_REGION to {REGION}" in command.log.read_text()
    environment["PRESSROOM_S3_REGION"] = REGION
    command = stack.start("bucket-elsewhere", "bucket", environment=environment)
    assert command.process.wait(30) == 0


@pytest.mark.parametrize(("style", "host"), [("auto", ""), ("path", ""), ("virtual", f"{BUCKET}.")])
@pytest.mark.usefixtures("local_bucket_hosts")
def test_s3_url_style_follows_its_setting(
    regional_server: RegionalServer, regional_settings: Settings, style: str, host: str
) -> None:
    endpoint = AnyHttpUrl(regional_server.url.replace("127.0.0.1", DOMAIN))
    regional_server.seen.clear()
    use_all_operations(
        open_store(regional_settings, s3_endpoint=endpoint, s3_addressing=style, s3_region=REGION),
        style,
    )
    assert {each.host for each in regional_server.seen} == {
        f"{host}{DOMAIN}:{regional_server.server_port}"
    }
    is_bucket_in_path = {each.path.startswith(f"/{BUCKET}") for each in regional_server.seen}
    assert is_bucket_in_path == {style != "virtual"}


def test_aws_requests_use_the_host_of_the_configured_region(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hosts: list[str] = []

    def record_host(host: str, *_: object, **__: object) -> None:
        hosts.append(host)
        raise socket.gaierror("nothing here reaches AWS")

    monkeypatch.setattr(socket, "getaddrinfo", record_host)
    for url, region in (
        ("https://s3.amazonaws.com", "eu-west-1"),
        ("https://s3.eu-west-1.amazonaws.com", None),
    ):
        settings = ObjectStorageSettings.model_validate(
            {"s3_endpoint": url, "s3_region": region, "s3_access_key": "k", "s3_secret_key": "s"}
        )
        with pytest.raises(ServerFailed):
            ObjectStore(settings, connections=1).has_bucket()
    assert set(hosts) == {"pressroom.s3.eu-west-1.amazonaws.com"}


@pytest.mark.parametrize("url", ["https://elsewhere.amazonaws.com", "https://s3.amazonaws.com.cn"])
def test_invalid_aws_endpoint_is_rejected_with_its_setting(url: str) -> None:
    with pytest.raises(SettingsError, match="PRESSROOM_S3_ENDPOINT: "):
        ObjectStore(ObjectStorageSettings.model_validate({"s3_endpoint": url}), connections=1)


def test_stored_objects_are_encrypted_as_configured(
    regional_server: RegionalServer, regional_settings: Settings
) -> None:
    """The test server records the encryption headers of each object."""
    key = "our-objects"
    for encryption, expected in (
        (None, {}),
        ("sse-s3", {"": "AES256"}),
        (f"sse-kms:{key}", {"": "aws:kms", "-aws-kms-key-id": key}),
    ):
        objects = open_store(regional_settings, s3_region=REGION, s3_encryption=encryption)
        large = b"x" * 6_000_000  # The client splits this content.
        for data in (b"x" * 100, large):
            objects.put("encrypted", data, "text/plain")
            assert objects.get("encrypted") == data
            encryption_headers = {
                suffix: value
                for suffix, value in regional_server.encryption.items()
                if suffix != "-context"
            }
            assert encryption_headers == expected
