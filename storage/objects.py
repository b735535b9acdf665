"""Stores the product's files in a bucket of S3-compatible storage."""

import secrets
import time
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
from storage.full_disks import FULL_DISKS, Store
from storage.s3_client import get_server_encryption, open_client
from storage.s3_errors import add_advice, explain_error

STREAM_BYTES = 128 * 1024
_CHECK_KEY = "checks/write"
# The object needs more than one block of the disk, and can't be compressed.
_CHECK_BYTES = 8192
# The time limit of a call to the object storage, including a retry. A call transfers at most a few
# megabytes. Jobs have a far longer time limit than ``MAX_CALL_SECONDS``, so that a job can retry a
# call that hangs.
MAX_CALL_SECONDS = 10.0
# The maximum number of objects per deletion request. Deleting too many objects in one request would
# exceed the time limit.
_MAX_OBJECTS_PER_DELETION = 100

SERVER = "object storage"
NO_BUCKET = f"The {SERVER} rejected the request: {add_advice('NoSuchBucket')}."
_MISSING = "NoSuchKey"
# The error code of MinIO for a full disk.
_STORAGE_FULL = "XMinioStorageFull"


class ObjectMissing(Exception):
    pass


class DeletionRefused(TransientError):
    """The object storage refused to remove some objects.

    Attributes:
        codes: the storage's error code for each object that was not removed, by object key.
    """

    def __init__(self, codes: Mapping[str, str]) -> None:
        self.codes = codes
        reasons = ", ".join(sorted(set(codes.values())))
        super().__init__(f"The {SERVER} did not delete {len(codes)} of the objects: {reasons}.")


@dataclass(frozen=True)
class StoredObject:
    key: str
    modified_at: datetime


class ObjectStore:
    """A bucket of S3-compatible storage. Every storage failure is raised as a ``TransientError``.

    Args:
        prefix: the prefix of all keys in the bucket, which callers of ``ObjectStore`` don't see.
    """

    def __init__(
        self, settings: ObjectStorageSettings, *, connections: int, prefix: str = ""
    ) -> None:
        self._bucket = settings.s3_bucket
        self._prefix = prefix
        self._breaker = Breaker(SERVER)
        self._encryption = get_server_encryption(settings)
        self._client = open_client(settings, connections=connections)
        self._span_attributes: SpanAttributes = {"server.address": settings.s3_endpoint.host or ""}

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

    def check_space(self) -> None:
        """Write a small object and remove it, to find out whether the storage's disk is full."""
        began_at = time.monotonic()
        data = BytesIO(secrets.token_bytes(_CHECK_BYTES))
        key = self._prefix + _CHECK_KEY
        with self._call("check", _CHECK_KEY):
            try:
                self._client.put_object(self._bucket, key, data, _CHECK_BYTES, sse=self._encryption)
            except S3Error as error:
                # Some servers report a full disk only as an internal error.
                if error.response.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                    FULL_DISKS.report_full(Store.OBJECTS, f"a write failed with {error.code}")
                raise
        FULL_DISKS.report_write(Store.OBJECTS, began_at)
        self.remove(_CHECK_KEY)

    def get(self, key: str) -> bytes:
        with time_limit(MAX_CALL_SECONDS):
            return b"".join(self.stream(key))

    def stream(self, key: str, offset: int = 0, length: int = 0) -> Generator[bytes, None, None]:
        """Yield an object's bytes in chunks.

        Args:
            length: the number of bytes to yield, or 0 for all bytes to the end of the object.
        """
        with self._call("get", key):
            response = self._client.get_object(
                self._bucket, self._prefix + key, offset=offset, length=length
            )
        try:
            while True:
                # Read the chunks without the circuit breaker, because the reader may pause between
                # two chunks.
                with _translate_errors(key), time_limit(MAX_CALL_SECONDS):
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
        """Ignore missing objects. If the storage refuses to remove some objects, remove all others,
        and then raise ``DeletionRefused``.
        """
        refusal_codes: dict[str, str] = {}
        for start in range(0, len(keys), _MAX_OBJECTS_PER_DELETION):
            batch = keys[start : start + _MAX_OBJECTS_PER_DELETION]
            with self._call("remove", batch[0]):
                deletions = [DeleteObject(self._prefix + key) for key in batch]
                # Iterate over all errors, because the client sends the deletion request only while
                # its result is iterated over.
                errors = list(self._client.remove_objects(self._bucket, deletions))
            for error in errors:
                # An error without an object name concerns the whole batch.
                for key in [error.name.removeprefix(self._prefix)] if error.name else batch:
                    if error.code != _MISSING:
                        refusal_codes[key] = error.code
        if refusal_codes:
            raise DeletionRefused(refusal_codes)

    def list_objects(self, prefix: str = "") -> Iterator[StoredObject]:
        """Yield objects in the byte order of the keys.

        The list of objects is fetched page by page, so that listing a large bucket needs little
        memory.
        """
        full_prefix = self._prefix + prefix
        items = iter(self._client.list_objects(self._bucket, prefix=full_prefix, recursive=True))
        while True:
            with self._call("list", prefix):
                item = next(items, None)
            if item is None:
                return
            if item.object_name and item.last_modified:
                key = item.object_name.removeprefix(self._prefix)
                yield StoredObject(key, item.last_modified)

    def has_bucket(self) -> bool:
        """Return whether the bucket exists.

        Raises ``TransientError`` if the bucket can't be looked up. The error names the setting that
        is probably wrong.
        """
        with self._call("look at bucket", ""):
            try:
                return self._client.bucket_exists(self._bucket)
            except S3Error:
                # Send a GET request, because the response to a HEAD request doesn't explain the
                # error.
                next(iter(self._client.list_objects(self._bucket)), None)
                raise

    def create_bucket(self) -> None:
        if not self.has_bucket():
            with self._call("make bucket", ""):
                self._client.make_bucket(self._bucket)

    @contextmanager
    def _call(self, operation: str, key: str) -> Iterator[None]:
        with (
            # The span omits the object's key, which may contain personal data.
            spans.step_span(f"s3 {operation}", "client", self._span_attributes),
            self._breaker.protect(),
            observe_s3(TransientError),
            _translate_errors(key),
            time_limit(MAX_CALL_SECONDS),
        ):
            yield


@contextmanager
def _translate_errors(key: str) -> Iterator[None]:
    try:
        yield
    except S3Error as error:
        if error.code == _MISSING:
            raise ObjectMissing(key) from error
        if error.response.status == HTTPStatus.INSUFFICIENT_STORAGE or error.code == _STORAGE_FULL:
            FULL_DISKS.report_full(Store.OBJECTS, str(error.code))
        is_server_error = error.response.status >= HTTPStatus.INTERNAL_SERVER_ERROR
        if is_server_error and Store.OBJECTS in FULL_DISKS.list_stores():
            # The circuit breaker must not reject reads, which work although the disk is full.
            raise TransientError(f"The disk of the {SERVER} is full ({error.code}).") from error
        if is_server_error:
            raise ServerFailed(SERVER, str(error.code)) from error
        # The object storage works, but has rejected the request. Only an operator can fix an error
        # such as AccessDenied.
        raise TransientError(
            f"The {SERVER} rejected the request: {explain_error(error)}."
        ) from error
    except (MinioException, HTTPError, TimeoutError) as error:
        raise ServerFailed(SERVER, type(error).__name__) from error
