import secrets
from collections.abc import Iterator
from contextlib import closing

from cli.doctor.diagnoses import CheckAnswer, Part, fine, wrong
from core.settings import Settings
from integrations.http_client import HttpBounds, HttpClient, HttpFailure
from storage.objects import NO_BUCKET, ObjectStore

_SIZE, _FROM, _LENGTH = 4096, 1000, 100
_BOUNDS = HttpBounds(max_seconds=5.0, max_connect_seconds=2.0, max_reply_bytes=64 * 1024)
_SUCCESSES = range(200, 300)


def _ask(settings: Settings) -> Iterator[CheckAnswer]:
    store = ObjectStore(settings, connections=1)
    if not store.ready():
        yield wrong("bucket", NO_BUCKET, "Run `pressroom bucket`.")
        return
    region = settings.s3_region or "its usual one"
    yield fine("bucket", f"{settings.s3_bucket}, region: {region}")
    key, data = f"doctor/{secrets.token_hex(16)}", secrets.token_bytes(_SIZE)
    store.put(key, data, "application/octet-stream")
    try:
        yield fine("write", f"{_SIZE} bytes")
        yield _read(store, key, data)
        yield _range(store, key, data)
        yield _policy(settings, key)
    finally:
        store.remove(key)
    if store.exists(key):
        yield wrong("delete", "the object is still there", "Let the access key delete objects.")
    else:
        yield fine("delete", "the object is gone")


OBJECT_STORAGE = Part("object storage", _ask)


def _read(store: ObjectStore, key: str, data: bytes) -> CheckAnswer:
    if store.get(key) != data:
        return wrong("read", "other bytes than were written", "Use another storage.")
    return fine("read", "the same bytes")


def _range(store: ObjectStore, key: str, data: bytes) -> CheckAnswer:
    part = b"".join(store.stream(key, offset=_FROM, length=_LENGTH))
    if part != data[_FROM : _FROM + _LENGTH]:
        return wrong("range", "not the bytes that were asked for", "Use storage that knows Range.")
    return fine("range", f"{_LENGTH} bytes from {_FROM} on")


def _policy(settings: Settings, key: str) -> CheckAnswer:
    """Files of imports and images that owners did not publish are in the bucket too."""
    url = f"{str(settings.s3_endpoint).rstrip('/')}/{settings.s3_bucket}/{key}"
    with closing(HttpClient(_BOUNDS)) as http:
        try:
            status = http.send("GET", url).status
        except HttpFailure:
            status = 0
    if status in _SUCCESSES:
        advice = "Take the public read access from the bucket's policy: the API serves the files."
        return wrong("policy", "anybody can read the bucket", advice)
    return fine("policy", "strangers are refused")
