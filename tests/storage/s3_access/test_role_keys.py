"""Tests temporary S3 keys, which a server issues to the role of a machine."""

import os
from datetime import timedelta
from pathlib import Path

import httpx2
import pytest
from pydantic import AnyHttpUrl

from core.errors import ServerFailed, TransientError
from core.settings import Settings
from devstack import LOOPBACK
from devstack.harness.free_ports import free_port
from devstack.harness.polling import eventually
from devstack.harness.running import Running
from devstack.harness.stack import Stack, plain_client
from storage.objects import ObjectStore
from tests.support.http.regional_server import (
    BUCKET,
    IDENTITY_TOKEN,
    REGION,
    ROLE,
    RegionalServer,
)
from tests.support.http.servers import silent_server


@pytest.fixture(autouse=True)
def _remove_aws_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the environment variables of AWS, because they could select another AWS role."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def role_settings(regional_server: RegionalServer, regional_settings: Settings) -> Settings:
    """Settings without S3 keys, so that Pressroom must fetch temporary keys from a server."""
    return regional_settings.model_copy(
        update={
            "s3_region": REGION,
            "s3_access_key": None,
            "s3_secret_key": None,
            "s3_keys_url": AnyHttpUrl(regional_server.url),
        }
    )


@pytest.fixture
def web_identity(tmp_path: Path) -> dict[str, str]:
    """The environment variables that Kubernetes sets for a process with an AWS web identity."""
    token = tmp_path / "token"
    token.write_text(IDENTITY_TOKEN)
    return {"AWS_WEB_IDENTITY_TOKEN_FILE": str(token), "AWS_ROLE_ARN": ROLE}


@pytest.fixture
def web_identity_variables(web_identity: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the environment variables of the fixture `web_identity` in the test process."""
    for name, value in web_identity.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("web_identity_variables")
def test_web_identity_keys_are_reused_until_they_expire(
    regional_server: RegionalServer, role_settings: Settings
) -> None:
    objects = ObjectStore(role_settings, connections=1)
    for number in range(3):
        objects.put(f"by-role/{number}", b"bytes", "text/plain")
    assert len(regional_server.role.handed_out) == 1
    # The client fetches new keys ten seconds before the expiry of the old keys.
    regional_server.role.lifetime = timedelta(seconds=9)
    objects = ObjectStore(role_settings, connections=1)
    assert objects.get("by-role/0") == b"bytes"
    objects.remove("by-role/0", "by-role/1", "by-role/2")
    assert not list(objects.list_objects("by-role/"))
    assert len(regional_server.role.handed_out) == 4


def test_instance_role_keys_are_used_without_configured_s3_keys(
    regional_server: RegionalServer, role_settings: Settings
) -> None:
    assert ObjectStore(role_settings, connections=1).has_bucket()
    assert len(regional_server.role.handed_out) == 1


@pytest.mark.usefixtures("web_identity_variables")
def test_rejected_aws_role_is_reported_without_its_token_and_works_once_accepted(
    regional_server: RegionalServer, role_settings: Settings
) -> None:
    regional_server.role.is_closed = True
    objects = ObjectStore(role_settings, connections=1)
    with pytest.raises(TransientError, match="PRESSROOM_S3_ACCESS_KEY is not set") as caught:
        objects.has_bucket()
    assert "HTTP status code 403" in str(caught.value)
    assert IDENTITY_TOKEN not in str(caught.getrepr(chain=True))
    regional_server.role.is_closed = False
    assert objects.has_bucket()


@pytest.mark.usefixtures("web_identity_variables")
def test_missing_web_identity_token_file_is_named(
    role_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/not/there")
    with pytest.raises(TransientError, match="error in reading file /not/there"):
        ObjectStore(role_settings, connections=1).has_bucket()


@pytest.mark.usefixtures("web_identity_variables")
def test_unreachable_server_for_temporary_keys_counts_as_a_storage_failure(
    role_settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("storage.objects.MAX_CALL_SECONDS", 0.5)
    with silent_server() as hanging_server:
        for url in (f"http://{hanging_server}", f"http://{LOOPBACK}:1"):
            settings = role_settings.model_copy(update={"s3_keys_url": AnyHttpUrl(url)})
            with pytest.raises(ServerFailed, match="temporary keys") as error:
                ObjectStore(settings, connections=1).has_bucket()
            assert IDENTITY_TOKEN not in str(error.getrepr(chain=True)) + caplog.text


def start_api(
    stack: Stack, regional_server: RegionalServer, **more_variables: str
) -> tuple[Running, str]:
    """Start a second API process with the regional object storage, and return its URL too."""
    port = free_port()
    environment = {
        "PRESSROOM_S3_ENDPOINT": regional_server.url,
        "PRESSROOM_S3_KEYS_URL": regional_server.url,
        "PRESSROOM_S3_ACCESS_KEY": "",
        "PRESSROOM_S3_SECRET_KEY": "",
        "PRESSROOM_S3_BUCKET": BUCKET,
        "PRESSROOM_LOG_LEVEL": "debug",
    }
    return stack.start_api(port, **environment, **more_variables), f"http://{LOOPBACK}:{port}"


def read_bucket_state(client: httpx2.Client) -> tuple[int, str]:
    """Return the status code of `/readyz`, and the state of the object storage in the response."""
    reply = client.get("/readyz")
    return reply.status_code, reply.json()["dependencies"]["objects"]


@pytest.mark.tier("processes")
def test_api_uses_its_aws_role_and_never_logs_the_token(
    stack: Stack, regional_server: RegionalServer, web_identity: dict[str, str]
) -> None:
    """The API logs with the level `debug`."""
    api, url = start_api(stack, regional_server, PRESSROOM_S3_REGION=REGION, **web_identity)
    with plain_client(base_url=url) as client:
        eventually(lambda: read_bucket_state(client)[1] == "ok", what="the bucket")
    api.stop()
    assert "debug" in api.log.read_text()
    assert IDENTITY_TOKEN not in api.log.read_text()


@pytest.mark.tier("processes")
def test_api_starts_and_logs_the_wrong_s3_region_setting_once(
    stack: Stack, regional_server: RegionalServer, web_identity: dict[str, str]
) -> None:
    """The API starts without its bucket, because most calls don't use the object storage."""
    api, url = start_api(stack, regional_server, **web_identity)
    advice = f"set PRESSROOM_S3_REGION to {REGION}"
    eventually(lambda: advice in api.log.read_text(), what="the advice in the log")
    with plain_client(base_url=url) as client:
        # The first connection to the database may take longer than a second.
        eventually(
            lambda: read_bucket_state(client) == (200, "unavailable"), what="the process is ready"
        )
    api.stop()
    assert api.log.read_text().count(advice) == 1
