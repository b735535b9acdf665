"""Uploads that are refused leave nothing behind: no record, no object."""

import os
import signal
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest

from core.upload_limits import MAX_IMAGE_BYTES
from tests.contract.replies import data, objects_of, problem, send
from tests.contract.test_attachments import MULTIPART, multipart
from tests.pictures import encoded, photo
from tests.stack import Stack, eventually


@contextmanager
def leaves_nothing(stack: Stack, client: httpx2.Client) -> Iterator[None]:
    def objects() -> set[str]:
        return set(stack.stored())

    before = objects()
    yield
    assert data(client.get("/attachments"))["items"] == []
    eventually(lambda: objects() <= before, what="the objects of the refused upload gone")


def padded(length: int) -> bytes:
    """A JPEG of exactly that many bytes: decoders ignore what follows its end."""
    return photo(64, 64).ljust(length, b"\0")


FORM = MULTIPART["Content-Type"]
PICTURE = encoded("PNG")
NO_UPLOADS: dict[str, list[tuple[str, bytes]]] = {
    "attachment.file_missing": [
        (FORM, multipart()),
        (FORM, multipart(b'name="file"', PICTURE)),
        (FORM, multipart(b'name="picture"; filename="a.png"', PICTURE)),
        (FORM, multipart(b'name="file"; filename=""', b"")),
    ],
    "attachment.several_files": [
        (FORM, multipart(*(b'name="file"; filename="a.png"', PICTURE) * 2)),
    ],
    "body.malformed": [(FORM, multipart(*[b'name="a"', b""] * 5000))],
    "body.not_multipart": [
        (kind, PICTURE)
        for kind in (
            *("image/png", "application/json", "application/x-www-form-urlencoded"),
            *("multipart/form-data", "multipart/mixed; boundary=x"),
        )
    ],
}


@pytest.mark.parametrize("code", NO_UPLOADS)
def test_a_body_is_a_form_with_one_file(stack: Stack, client: httpx2.Client, code: str) -> None:
    with leaves_nothing(stack, client):
        for kind, body in NO_UPLOADS[code]:
            reply = client.post("/attachments", content=body, headers={"Content-Type": kind})
            problem(reply, 400, code)
        problem(client.post("/attachments"), 400, "body.not_multipart")


def test_broken_multipart_is_400(stack: Stack, client: httpx2.Client) -> None:
    whole = multipart(b'name="file"; filename="a.png"', encoded("PNG"))
    with leaves_nothing(stack, client):
        for body in (b"", b"garbage", whole[:40], whole[: len(whole) // 2], whole[:-30]):
            reply = client.post("/attachments", content=body, headers=MULTIPART)
            assert reply.status_code == 400, body
            assert reply.json()["code"] in ("body.malformed", "attachment.file_missing")


def test_other_extensions_and_other_bytes_are_415(stack: Stack, client: httpx2.Client) -> None:
    with leaves_nothing(stack, client):
        for name in ["a.svg", "a.png.exe", "a", ".png", "png", "a.png."]:
            problem(send(client, name=name), 415, "attachment.unsupported_type")
        for content in (encoded("TIFF"), b"<svg xmlns='http://www.w3.org/2000/svg'/>", b"x"):
            problem(send(client, content), 415, "attachment.unsupported_type")
        problem(send(client, b""), 422, "attachment.empty")


def test_five_megabytes_pass_and_one_byte_more_does_not(
    stack: Stack, client: httpx2.Client
) -> None:
    assert MAX_IMAGE_BYTES == 5 * 1024 * 1024
    with leaves_nothing(stack, client):
        for extra in (1, 1000, 64 * 1024, 1024 * 1024):
            reply = send(client, padded(MAX_IMAGE_BYTES + extra), "a.jpg")
            problem(reply, 413, "attachment.too_large")
    assert data(send(client, padded(MAX_IMAGE_BYTES), "a.jpg"))["original_size"] == MAX_IMAGE_BYTES


def huge_png(width: int, height: int) -> bytes:
    """A header that promises much, and no pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + checksum

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = chunk(b"IDAT", zlib.compress(b"\0" * 64))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + pixels + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"\x89PNG\r\n\x1a\n", None),
        (b"\xff\xd8\xff\xe0junk" * 10, None),
        (b"GIF89a", None),
        (encoded("PNG")[:-40], None),
        (photo(200, 200)[:-2000], None),
        (huge_png(16_384, 10), "image.side_too_long"),
        (huge_png(8_000, 8_000), "image.too_many_pixels"),
    ],
    ids=["only magic", "junk jpeg", "only gif", "cut png", "cut jpeg", "side", "pixels"],
)
def test_unreadable_pictures_are_422_and_leave_nothing(
    stack: Stack, client: httpx2.Client, content: bytes, code: str | None
) -> None:
    with leaves_nothing(stack, client):
        reply = send(client, content)
        body = problem(reply, 422, code or reply.json()["code"])
        assert body["code"].startswith("image.")
        # What went wrong stays known to its owner.
        [job] = data(client.get("/jobs"))["items"]
        assert (job["status"], job["error"]["code"]) == ("failed", body["code"])


@contextmanager
def paused(stack: Stack, name: str) -> Iterator[None]:
    pids = [running.pid for running in stack.processes if running.name == name]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def test_failure_after_a_202_ends_as_status_3_without_the_original(
    stack: Stack, client: httpx2.Client
) -> None:
    # Such a picture is refused in a moment: the worker must not look before the answer is out.
    with paused(stack, "worker-media-bulk-export"):
        reply = send(client, photo(1500, 1500)[:-5000], "a.jpg", prefer="respond-async")
        record = data(reply, 202)
    path = reply.headers["location"]

    def failed() -> object:
        found = data(client.get(path))
        return found if found["status"] == 3 else None

    found = eventually(failed, what="the failure")
    assert isinstance(found, dict)
    assert found["error"]["code"].startswith("image.")
    assert found["error"]["message"]
    assert (found["size"], found["checksum"], found["width"]) == (0, "", None)
    problem(client.get(f"/{found['pathname']}"), 404, "media.not_found")
    eventually(lambda: not objects_of(stack, record), what="the original gone")
    assert data(client.delete(path)) == 1


@pytest.mark.parametrize("name", ["encrypted", "renditions"])
def test_what_is_neither_yes_nor_no_is_400(stack: Stack, client: httpx2.Client, name: str) -> None:
    with leaves_nothing(stack, client):
        for flag in ["", "yes", "2", " true", "true,"]:
            asked: dict[str, Any] = {name: flag}
            body = problem(send(client, **asked), 400, "request.invalid")
            assert [each["field"] for each in body["errors"]] == [f"query.{name}"]


def test_encrypted_is_a_flag_in_any_case(quiet_client: httpx2.Client) -> None:
    for flag, expected in (("TRUE", True), ("1", True), ("False", False), ("0", False)):
        record = data(send(quiet_client, prefer="respond-async", encrypted=flag), 202)
        assert record["encrypted"] is expected
