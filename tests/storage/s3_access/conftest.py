"""Fixtures with a second object storage: a server in another region, with its own host name."""

import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from pydantic import AnyHttpUrl, SecretStr

from core.settings import Settings
from devstack import LOOPBACK
from devstack.harness.embedded_services import await_ready
from devstack.harness.free_ports import PICKER
from devstack.harness.stack import Stack
from devstack.supervisor.embedded.s3 import S3, S3Identity, pick_ports
from devstack.supervisor.home_folder import Home
from devstack.supervisor.supervision import Group
from tests.support.http.regional_server import (
    BUCKET,
    DOMAIN,
    RegionalServer,
    open_regional_server,
)

_ADMIN = S3Identity("admin", "administrator", "administrators-secret")


@pytest.fixture(scope="session")
def seaweedfs_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The host and port of a second SeaweedFS server, next to the S3 server of the test stack."""
    home = Home(tmp_path_factory.mktemp("elsewhere"))
    home.create()
    server = S3(
        home, pick_ports(PICKER), _ADMIN, S3Identity("other", "other", "others"), "k", BUCKET
    )
    program = server.build_program(())
    # The server has its own key management service, which creates each requested key.
    logins = json.loads(home.s3_logins.read_text())
    keys = {"local": {"type": "local", "enableOnDemandCreate": True}}
    logins["kms"] = {"default_provider": "local", "providers": keys}
    home.s3_logins.write_text(json.dumps(logins))
    program = replace(program, argv=(*program.argv, f"-s3.domainName={DOMAIN}"))
    group = Group([program], report=lambda _: None)
    try:
        await_ready(group)
        yield server.endpoint.removeprefix("http://")
    finally:
        group.stop([("s3",)])


@pytest.fixture
def regional_server(seaweedfs_address: str) -> Iterator[RegionalServer]:
    with open_regional_server(seaweedfs_address, _ADMIN.access_key, _ADMIN.secret_key) as running:
        yield running


@pytest.fixture
def regional_settings(stack: Stack, regional_server: RegionalServer) -> Settings:
    """Settings with the endpoint, keys and bucket of the regional S3 server, but no region."""
    return stack.settings().model_copy(
        update={
            "s3_endpoint": AnyHttpUrl(regional_server.url),
            "s3_access_key": _ADMIN.access_key,
            "s3_secret_key": SecretStr(_ADMIN.secret_key),
            "s3_bucket": BUCKET,
        }
    )


@pytest.fixture
def local_bucket_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the host names of all S3 buckets resolve to this machine."""
    real_getaddrinfo = socket.getaddrinfo

    def resolve_bucket_hosts_locally(host: Any, *arguments: Any, **options: Any) -> Any:
        is_bucket_host = isinstance(host, str) and host.endswith(DOMAIN)
        return real_getaddrinfo(LOOPBACK if is_bucket_host else host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve_bucket_hosts_locally)
