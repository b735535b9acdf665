"""Tests the creation of a bucket and its user. The tests replace the MinIO server by a fake."""

import json
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from io import BytesIO
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from minio.crypto import decrypt, encrypt
from pydantic import AnyHttpUrl, SecretStr
from urllib3 import HTTPResponse

from core.errors import TransientError
from core.settings import Settings
from devstack.harness.stack import Stack
from storage.buckets import create_bucket
from tests.support.http.servers import QuietHandler, running_server

ADMIN_SECRET = "administrators-secret"


class AdminServer(ThreadingHTTPServer):
    """A fake MinIO server that records requests.

    Like the real MinIO, this fake rejects a policy that is already attached.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), AdminHandler)
        self.users: dict[str, str] = {}
        self.policies: dict[str, Any] = {}
        self.attached: list[Any] = []
        self.buckets: set[str] = set()
        self.keys: set[str] = set()
        self.regions: set[str] = set()
        self.denies_access = False


class AdminHandler(QuietHandler):
    server: AdminServer

    def do_HEAD(self) -> None:
        self.reply(200 if urlsplit(self.path).path.strip("/") in self.server.buckets else 404)

    def do_PUT(self) -> None:
        self._handle()

    def do_POST(self) -> None:
        self._handle()

    def _handle(self) -> None:
        body = self.read_body()
        url = urlsplit(self.path)
        query = parse_qs(url.query)
        server = self.server
        scope = self.headers["Authorization"].partition("Credential=")[2].split("/")
        server.keys.add(scope[0])
        server.regions.add(scope[2])
        if server.denies_access:
            self.reply(403, b"AccessDenied")
        elif url.path.endswith("/add-canned-policy"):
            server.policies[query["name"][0]] = json.loads(body)
            self.reply(200)
        elif url.path.endswith("/add-user"):
            server.users[query["accessKey"][0]] = _decrypt_body(body)["secretKey"]
            self.reply(200)
        elif url.path.endswith("/policy/attach"):
            self._attach(_decrypt_body(body))
        else:
            server.buckets.add(url.path.strip("/"))
            self.reply(200)

    def _attach(self, attachment: Any) -> None:
        if attachment in self.server.attached:
            self.reply(400, b'{"Code": "XMinioAdminPolicyChangeAlreadyApplied"}')
        else:
            self.server.attached.append(attachment)
            self.reply(200, encrypt(b"{}", ADMIN_SECRET))


def _decrypt_body(body: bytes) -> Any:
    return json.loads(decrypt(HTTPResponse(BytesIO(body), preload_content=False), ADMIN_SECRET))


@pytest.fixture
def admin_server() -> Iterator[AdminServer]:
    """A test server that accepts the administration calls of an S3 object storage."""
    server = AdminServer()
    with running_server(server):
        yield server


@pytest.fixture
def bucket_settings(stack: Stack, admin_server: AdminServer) -> Settings:
    """Settings with the S3 keys of an administrator and of the application."""
    return stack.settings().model_copy(
        update={
            "s3_endpoint": AnyHttpUrl(f"http://127.0.0.1:{admin_server.server_port}"),
            "s3_bucket": "ours",
            "s3_access_key": "application",
            "s3_secret_key": SecretStr("applications-secret"),
            "s3_admin_access_key": "administrator",
            "s3_admin_secret_key": SecretStr(ADMIN_SECRET),
        }
    )


def test_bucket_user_may_access_only_its_own_bucket(
    admin_server: AdminServer, bucket_settings: Settings
) -> None:
    create_bucket(bucket_settings)
    assert admin_server.buckets == {"ours"}
    assert admin_server.users == {"application": "applications-secret"}
    assert admin_server.keys == {"administrator"}
    [(name, policy)] = admin_server.policies.items()
    assert admin_server.attached == [{"policies": [name], "user": "application"}]
    resources = {arn for each in policy["Statement"] for arn in each["Resource"]}
    assert resources == {"arn:aws:s3:::ours", "arn:aws:s3:::ours/*"}
    actions = {action for each in policy["Statement"] for action in each["Action"]}
    assert not [action for action in actions if "*" in action or "Policy" in action]


def test_bucket_creation_is_idempotent_and_updates_the_secret_key(
    admin_server: AdminServer, bucket_settings: Settings
) -> None:
    create_bucket(bucket_settings)
    create_bucket(bucket_settings.model_copy(update={"s3_secret_key": SecretStr("a-later-secret")}))
    assert admin_server.users == {"application": "a-later-secret"}
    assert len(admin_server.attached) == 1


def test_bucket_administration_requests_are_signed_for_the_bucket_region(
    admin_server: AdminServer, bucket_settings: Settings
) -> None:
    create_bucket(bucket_settings.model_copy(update={"s3_region": "eu-west-3"}))
    assert admin_server.regions == {"eu-west-3"}


def test_bucket_creation_error_contains_no_secret_key(
    admin_server: AdminServer, bucket_settings: Settings
) -> None:
    create_bucket(bucket_settings)
    admin_server.denies_access = True
    with pytest.raises(TransientError, match="AccessDenied") as caught:
        create_bucket(bucket_settings)
    assert "secret" not in str(caught.value)
