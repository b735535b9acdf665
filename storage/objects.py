from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from io import BytesIO
from socket import socket

import urllib3
from minio import Minio
from minio.deleteobjects import DeleteObject
from minio.error import MinioException, S3Error
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HTTPError

from core.calls.breaker import Breaker
from core.calls.time_limits import limited, time_limit, tls_context
from core.errors import ServerFailed, TransientError
from core.settings.store_settings import ObjectStorageSettings

STREAM_BYTES = 128 * 1024
# A call, both of its tries together: an object of a few megabytes, or the next piece of a large
# one. Well under a lease's deadline, so that a storage that hangs costs a job no more than a retry.
MAX_CALL_SECONDS = 10.0
_CONNECT_SECONDS = 2.0
_READ_SECONDS = 5.0
# Deleting takes the storage some time for each object.
_MAX_REMOVED_AT_ONCE = 100

SERVER = "object storage"


class ObjectMissing(Exception):
    """There is no object of that key."""


@dataclass(frozen=True)
class StoredObject:
    key: str
    modified_at: datetime


class ObjectStore:
    """One bucket of S3-compatible storage. Every failure of the service is a ``TransientError``."""

    def __init__(self, settings: ObjectStorageSettings, *, connections: int) -> None:
        self._bucket = settings.s3_bucket
        self._breaker = Breaker(SERVER)
        endpoint = settings.s3_endpoint
        self._client = Minio(
            f"{endpoint.host}:{endpoint.port}",
            access_key=settings.s3_access_key,
            secret_key=settings.s3_secret_key.get_secret_value(),
            secure=endpoint.scheme == "https",
            region="us-east-1",
            http_client=pool_manager(connections, is_tls=endpoint.scheme == "https"),
        )

    def put(self, key: str, data: bytes, content_type: str) -> None:
        with self._call(key):
            self._client.put_object(
                self._bucket, key, BytesIO(data), len(data), content_type=content_type
            )

    def get(self, key: str) -> bytes:
        """The whole object; raises ``ObjectMissing``."""
        with time_limit(MAX_CALL_SECONDS):
            return b"".join(self.stream(key))

    def stream(self, key: str, offset: int = 0, length: int = 0) -> Generator[bytes, None, None]:
        """``length`` bytes from ``offset`` (0: to the end) in chunks; raises ``ObjectMissing``."""
        with self._call(key):
            response = self._client.get_object(self._bucket, key, offset=offset, length=length)
        try:
            while True:
                # Not guarded by the breaker: whoever reads may take any time between two chunks.
                with _translated(key), time_limit(MAX_CALL_SECONDS):
                    chunk = response.read(STREAM_BYTES)
                if not chunk:
                    return
                yield chunk
        finally:
            response.close()
            response.release_conn()

    def exists(self, key: str) -> bool:
        try:
            with self._call(key):
                self._client.stat_object(self._bucket, key)
        except ObjectMissing:
            return False
        return True

    def remove(self, *keys: str) -> None:
        """Remove these objects; one that is missing already is no error."""
        for start in range(0, len(keys), _MAX_REMOVED_AT_ONCE):
            batch = [DeleteObject(key) for key in keys[start : start + _MAX_REMOVED_AT_ONCE]]
            with self._call(keys[start]):
                # The client sends nothing before its errors are read.
                for refused in self._client.remove_objects(self._bucket, batch):
                    raise TransientError(f"The {SERVER} keeps an object: {refused.code}.")

    def stored(self, prefix: str = "") -> Iterator[StoredObject]:
        """Every object with this prefix, in the order of the keys' bytes; read a page at a time."""
        items = iter(self._client.list_objects(self._bucket, prefix=prefix, recursive=True))
        while True:
            with self._call(prefix):
                item = next(items, None)
            if item is None:
                return
            if item.object_name and item.last_modified:
                yield StoredObject(item.object_name, item.last_modified)

    def ready(self) -> bool:
        with self._call(""):
            return self._client.bucket_exists(self._bucket)

    def make_bucket(self) -> None:
        """Make the bucket unless it exists."""
        with self._call(""):
            if not self._client.bucket_exists(self._bucket):
                self._client.make_bucket(self._bucket)

    @contextmanager
    def _call(self, key: str) -> Iterator[None]:
        with self._breaker.guarding(), _translated(key), time_limit(MAX_CALL_SECONDS):
            yield


@contextmanager
def _translated(key: str) -> Iterator[None]:
    """Translate the client's exceptions."""
    try:
        yield
    except S3Error as error:
        if error.code == "NoSuchKey":
            raise ObjectMissing(key) from error
        if error.response.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise ServerFailed(SERVER, str(error.code)) from error
        # An answer, such as AccessDenied: an operator can mend it.
        raise TransientError(f"The {SERVER} refuses: {error.code}.") from error
    except (MinioException, HTTPError, TimeoutError) as error:
        raise ServerFailed(SERVER, type(error).__name__) from error


class _Connection(HTTPConnection):
    def _new_conn(self) -> socket:
        return limited(super()._new_conn())


class _TlsConnection(HTTPSConnection):
    def _new_conn(self) -> socket:
        return limited(super()._new_conn())


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


def pool_manager(connections: int, *, is_tls: bool) -> urllib3.PoolManager:
    # Reading the system's authorities takes longer than the rest of a client.
    tls = {"ssl_context": tls_context()} if is_tls else {}
    made = urllib3.PoolManager(
        maxsize=connections,
        timeout=urllib3.Timeout(connect=_CONNECT_SECONDS, read=_READ_SECONDS),
        retries=urllib3.Retry(total=1, backoff_factor=0.1, status_forcelist=[502, 503]),
        **tls,  # type: ignore[arg-type]
    )
    made.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}
    return made
