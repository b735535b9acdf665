from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from io import BytesIO

import urllib3
from minio import Minio
from minio.error import MinioException, S3Error
from urllib3.exceptions import HTTPError

from core.errors import TransientError
from core.settings import Settings

STREAM_BYTES = 128 * 1024


class ObjectMissing(Exception):
    """There is no object of that key."""


@dataclass(frozen=True)
class StoredObject:
    key: str
    modified_at: datetime


class ObjectStore:
    """One bucket of S3-compatible storage. Every failure of the service is a ``TransientError``."""

    def __init__(self, settings: Settings, *, connections: int) -> None:
        self._bucket = settings.s3_bucket
        endpoint = settings.s3_endpoint
        self._client = Minio(
            f"{endpoint.host}:{endpoint.port}",
            access_key=settings.s3_access_key,
            secret_key=settings.s3_secret_key.get_secret_value(),
            secure=endpoint.scheme == "https",
            region="us-east-1",
            http_client=urllib3.PoolManager(
                maxsize=connections,
                timeout=urllib3.Timeout(connect=2, read=20),
                retries=urllib3.Retry(total=2, backoff_factor=0.1, status_forcelist=[502, 503]),
            ),
        )

    def put(self, key: str, data: bytes, content_type: str) -> None:
        with _translated(key):
            self._client.put_object(
                self._bucket, key, BytesIO(data), len(data), content_type=content_type
            )

    def get(self, key: str) -> bytes:
        """The whole object; raises ``ObjectMissing``."""
        return b"".join(self.stream(key))

    def stream(self, key: str, offset: int = 0, length: int = 0) -> Iterator[bytes]:
        """``length`` bytes from ``offset`` (0: to the end) in chunks; raises ``ObjectMissing``."""
        with _translated(key):
            response = self._client.get_object(self._bucket, key, offset=offset, length=length)
            try:
                yield from response.stream(STREAM_BYTES)
            finally:
                response.close()
                response.release_conn()

    def exists(self, key: str) -> bool:
        try:
            with _translated(key):
                self._client.stat_object(self._bucket, key)
        except ObjectMissing:
            return False
        return True

    def remove(self, key: str) -> None:
        """Remove the object; one that is missing already is no error."""
        with _translated(key):
            self._client.remove_object(self._bucket, key)

    def stored(self, prefix: str = "") -> Iterator[StoredObject]:
        """Every object with this prefix, in the order of the keys' bytes; read a page at a time."""
        with _translated(prefix):
            for item in self._client.list_objects(self._bucket, prefix=prefix, recursive=True):
                if item.object_name and item.last_modified:
                    yield StoredObject(item.object_name, item.last_modified)

    def ready(self) -> bool:
        with _translated(""):
            return self._client.bucket_exists(self._bucket)

    def make_bucket(self) -> None:
        """Make the bucket unless it exists."""
        with _translated(""):
            if not self._client.bucket_exists(self._bucket):
                self._client.make_bucket(self._bucket)


@contextmanager
def _translated(key: str) -> Iterator[None]:
    """Translate the client's exceptions."""
    try:
        yield
    except S3Error as error:
        if error.code == "NoSuchKey":
            raise ObjectMissing(key) from error
        raise TransientError(f"object storage: {error.code}") from error
    except (MinioException, HTTPError) as error:
        raise TransientError(f"object storage: {type(error).__name__}") from error
