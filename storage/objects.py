from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from io import BytesIO

from minio.deleteobjects import DeleteObject
from minio.error import MinioException, S3Error
from urllib3.exceptions import HTTPError

from core.calls.breaker import Breaker
from core.calls.time_limits import time_limit
from core.counters.store_metrics import observe_s3
from core.errors import ServerFailed, TransientError
from core.settings.store_settings import ObjectStorageSettings
from core.telemetry import spans
from core.telemetry.attributes import SpanAttributes
from storage.s3_client import encryption_of, open_client
from storage.s3_errors import add_advice, explain_error

STREAM_BYTES = 128 * 1024
# A call, both of its tries together: an object of a few megabytes, or the next piece of a large
# one. This is well under a lease's deadline: a storage that hangs costs a job no more than a retry.
MAX_CALL_SECONDS = 10.0
# Deleting takes the storage some time for each object.
_MAX_REMOVED_AT_ONCE = 100

SERVER = "object storage"
NO_BUCKET = f"The {SERVER} refuses: {add_advice('NoSuchBucket')}."
_MISSING = "NoSuchKey"


class ObjectMissing(Exception):
    """There is no object of that key."""


class ObjectsKept(TransientError):
    """The server refuses to remove some objects; ``codes`` has its code for each key."""

    def __init__(self, codes: Mapping[str, str]) -> None:
        self.codes = codes
        which = ", ".join(sorted(set(codes.values())))
        super().__init__(f"The {SERVER} keeps {len(codes)} of the objects: {which}.")


@dataclass(frozen=True)
class StoredObject:
    key: str
    modified_at: datetime


class ObjectStore:
    """A bucket of S3-compatible storage. Every failure of the service is a ``TransientError``.

    ``prefix`` is where all keys begin in the bucket; callers neither give nor see it.
    """

    def __init__(
        self, settings: ObjectStorageSettings, *, connections: int, prefix: str = ""
    ) -> None:
        self._bucket = settings.s3_bucket
        self._prefix = prefix
        self._breaker = Breaker(SERVER)
        self._encryption = encryption_of(settings)
        self._client = open_client(settings, connections=connections)
        self._about: SpanAttributes = {"server.address": settings.s3_endpoint.host or ""}

    def put(self, key: str, data: bytes, content_type: str) -> None:
        with self._call("put", key):
            self._client.put_object(
                self._bucket,
                self._prefix + key,
                BytesIO(data),
                len(data),
                content_type=content_type,
                sse=self._encryption,
            )

    def get(self, key: str) -> bytes:
        """The whole object; raises ``ObjectMissing``."""
        with time_limit(MAX_CALL_SECONDS):
            return b"".join(self.stream(key))

    def stream(self, key: str, offset: int = 0, length: int = 0) -> Generator[bytes, None, None]:
        """``length`` bytes from ``offset`` (0: to the end) in chunks; raises ``ObjectMissing``."""
        with self._call("get", key):
            response = self._client.get_object(
                self._bucket, self._prefix + key, offset=offset, length=length
            )
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
            with self._call("look at", key):
                self._client.stat_object(self._bucket, self._prefix + key)
        except ObjectMissing:
            return False
        return True

    def remove(self, *keys: str) -> None:
        """Remove these objects, many with one call; one that is missing already is no error.

        Raises ``ObjectsKept`` once it has removed all that the server lets it remove.
        """
        kept: dict[str, str] = {}
        for start in range(0, len(keys), _MAX_REMOVED_AT_ONCE):
            batch = keys[start : start + _MAX_REMOVED_AT_ONCE]
            with self._call("remove", batch[0]):
                # The client sends nothing before its errors are read.
                named = [DeleteObject(self._prefix + key) for key in batch]
                refused = list(self._client.remove_objects(self._bucket, named))
            for each in refused:
                # An error without a key is about the whole call.
                for key in [each.name.removeprefix(self._prefix)] if each.name else batch:
                    if each.code != _MISSING:
                        kept[key] = each.code
        if kept:
            raise ObjectsKept(kept)

    def stored(self, prefix: str = "") -> Iterator[StoredObject]:
        """Every object with this prefix, in the order of the keys' bytes; read a page at a time."""
        beginning = self._prefix + prefix
        items = iter(self._client.list_objects(self._bucket, prefix=beginning, recursive=True))
        while True:
            with self._call("list", prefix):
                item = next(items, None)
            if item is None:
                return
            if item.object_name and item.last_modified:
                key = item.object_name.removeprefix(self._prefix)
                yield StoredObject(key, item.last_modified)

    def ready(self) -> bool:
        """Return whether the bucket is there; raises ``TransientError``, which names a wrong
        setting.
        """
        with self._call("look at bucket", ""):
            try:
                return self._client.bucket_exists(self._bucket)
            except S3Error:
                # The answer to a HEAD has no text that says why, and the one to a GET has.
                next(iter(self._client.list_objects(self._bucket)), None)
                raise

    def make_bucket(self) -> None:
        """Make the bucket unless it exists."""
        if not self.ready():
            with self._call("make bucket", ""):
                self._client.make_bucket(self._bucket)

    @contextmanager
    def _call(self, what: str, key: str) -> Iterator[None]:
        with (
            # The host is the operator's; a key may be named after what a person sent.
            spans.step_span(f"s3 {what}", "client", self._about),
            self._breaker.protect(),
            observe_s3(TransientError),
            _translated(key),
            time_limit(MAX_CALL_SECONDS),
        ):
            yield


@contextmanager
def _translated(key: str) -> Iterator[None]:
    """Translate the client's exceptions."""
    try:
        yield
    except S3Error as error:
        if error.code == _MISSING:
            raise ObjectMissing(key) from error
        if error.response.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise ServerFailed(SERVER, str(error.code)) from error
        # An answer, such as AccessDenied: an operator can mend it.
        raise TransientError(f"The {SERVER} refuses: {explain_error(error)}.") from error
    except (MinioException, HTTPError, TimeoutError) as error:
        raise ServerFailed(SERVER, type(error).__name__) from error
