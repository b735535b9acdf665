"""Tests that Pressroom stores images and their metadata, but nothing of a rejected upload."""

import hashlib
import io
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest
from PIL import Image

from core.errors import DomainError
from core.errors.jobs import JOB_BROKE, JOB_CANCELLED, JOB_GIVEN_UP
from core.errors.media import IMAGE_UNREADABLE
from core.upload_limits import MAX_IMAGE_BYTES
from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack
from tests.support.http.multipart import MULTIPART_HEADER, make_multipart
from tests.support.http.replies import TIMESTAMP, data, objects_of, problem, send
from tests.support.images.pictures import encoded, photo
from tests.support.imports.bulk import fail_job
from tests.support.stack.frozen_processes import frozen

MIME_TYPES = {"PNG": "png", "JPEG": "jpeg", "GIF": "gif", "WEBP": "webp", "ICO": "x-icon"}


def test_attachment_record_describes_original_and_stored_image(
    stack: Stack, client: httpx2.Client, owner: Owner
) -> None:
    original = photo(320, 200)
    record = data(send(client, original, "Holiday photo.jpeg"))
    assert re.fullmatch(r"[a-z0-9]{12}", record["hash_id"])
    assert record["user_id"] == owner.user_id
    assert (record["status"], record["error"], record["encrypted"]) == (2, None, False)
    assert record["mime_type"] == "image/webp"
    assert record["filename"] == f"{record['hash_id']}.webp"
    assert record["pathname"] == f"media/{record['filename']}"
    assert record["view_url"] == f"{stack.api_url}/{record['pathname']}"
    assert (record["width"], record["height"], record["frames"]) == (320, 200, 1)
    assert record["blurhash"]
    assert (record["renditions"], record["tags"]) == ([], [])
    assert (record["alt_text"], record["title"]) == (None, None)
    assert record["original_filename"] == "Holiday photo.jpeg"
    assert record["original_mime_type"] == "image/jpeg"
    assert record["original_size"] == len(original)
    assert record["original_checksum"] == hashlib.sha256(original).hexdigest()
    assert TIMESTAMP.fullmatch(record["created_at"])
    assert TIMESTAMP.fullmatch(record["updated_at"])
    stored_image = httpx2.get(record["view_url"]).content
    assert (record["size"], record["checksum_method"]) == (len(stored_image), "sha256")
    assert record["checksum"] == hashlib.sha256(stored_image).hexdigest()
    assert Image.open(io.BytesIO(stored_image)).size == (320, 200)
    # Only the converted image and its thumbnail are stored, and not the original image.
    thumbnail = f"renditions/{record['hash_id']}/{record['thumbnail']['filename']}"
    assert sorted(objects_of(stack, record)) == [record["pathname"], thumbnail]


@pytest.mark.parametrize("query", [{}, {"renditions": "1"}])
def test_every_upload_has_a_thumbnail_that_is_not_a_rendition(
    client: httpx2.Client, query: dict[str, str]
) -> None:
    record = data(send(client, photo(900, 1200), "portrait.jpg", **query))
    thumbnail = record["thumbnail"]
    assert (thumbnail["width"], thumbnail["height"]) == (180, 240)
    stored_thumbnail = httpx2.get(thumbnail["view_url"]).content
    assert len(stored_thumbnail) == thumbnail["size"] <= 40_000
    assert Image.open(io.BytesIO(stored_thumbnail)).size == (180, 240)
    names = [each["name"] for each in record["renditions"]]
    assert names == (["320", "640", "mail"] if query else [])


@pytest.mark.parametrize(
    ("file_format", "filename", "stored_format"),
    [
        ("PNG", "a.PNG", "webp"),
        ("JPEG", "a.JpG", "webp"),
        ("JPEG", "a.jpeg", "webp"),
        ("GIF", "a.GIF", "webp"),
        ("WEBP", "a.WebP", "webp"),
        ("ICO", "favicon.ICO", "png"),
        ("PNG", "really-a-png.jpg", "webp"),
        ("ICO", "an-icon.gif", "png"),
        ("JPEG", "shot.2026.11.20.ico", "webp"),
    ],
)
def test_image_upload_accepts_six_extensions_in_any_case_and_detects_type_from_bytes(
    client: httpx2.Client, file_format: str, filename: str, stored_format: str
) -> None:
    record = data(send(client, encoded(file_format), filename))
    assert record["original_mime_type"] == f"image/{MIME_TYPES[file_format]}"
    assert record["filename"].endswith(f".{stored_format}")
    assert record["mime_type"] == f"image/{stored_format}"
    reply = httpx2.get(record["view_url"])
    assert reply.headers["content-type"] == f"image/{stored_format}"


@pytest.mark.parametrize(
    ("sent_filename", "stored_filename"),
    [
        ("C:\\Users\\me\\Bild.png", "Bild.png"),
        ("../../etc/Bild.png", "Bild.png"),
        ("häuser & <b>\u65e5\u672c\u8a9e</b> \U0001f389.png", "b> \U0001f389.png"),
        ("x" * 300 + ".png", "x" * 251 + ".png"),
    ],
    ids=["windows", "parents", "unicode", "long"],
)
def test_original_filename_of_upload_keeps_only_the_last_path_segment(
    client: httpx2.Client, sent_filename: str, stored_filename: str
) -> None:
    assert data(send(client, name=sent_filename))["original_filename"] == stored_filename


@pytest.mark.parametrize(
    "disposition",
    [
        b"name=file; filename=\"=?utf-8?B?w6l0w6kuanBn?=\"; filename*=utf-8''%C3%A9t%C3%A9.jpg",
        b"name=\"file\"; filename*=utf-8''%C3%A9t%C3%A9.jpg",
        b'name="file"; filename="\xe9t\xe9.jpg"',
    ],
    ids=["dotnet", "star-only", "latin-1"],
)
def test_encoded_original_filename_of_upload_is_decoded(
    client: httpx2.Client, disposition: bytes
) -> None:
    body = make_multipart(disposition, encoded("JPEG"))
    record = data(client.post("/attachments", content=body, headers=MULTIPART_HEADER))
    assert record["original_filename"] == "été.jpg"


def test_deleting_an_attachment_removes_its_record_and_files(
    stack: Stack, client: httpx2.Client
) -> None:
    record = data(send(client, photo(700, 350), "p.jpg", renditions="1"))
    path = f"/attachments/{record['hash_id']}"
    assert data(client.delete(path)) == 1
    problem(client.get(path), 404, "attachment.not_found")
    problem(client.delete(path), 404, "attachment.not_found")
    for file in (record, *record["renditions"]):
        problem(client.get(f"/{file['pathname']}"), 404, "media.not_found")
    assert data(client.get("/attachments"))["items"] == []
    assert stack.query("SELECT 1 FROM attachments WHERE id = %s", record["id"]) == []
    eventually(lambda: objects_of(stack, record) == [], what="the removal of all files")


def test_deleting_an_attachment_before_its_conversion_cancels_the_job(
    stack_without_workers: Stack, client_without_workers: httpx2.Client
) -> None:
    record = data(send(client_without_workers, prefer="respond-async"), 202)
    [job] = data(client_without_workers.get("/jobs"))["items"]
    assert data(client_without_workers.delete(f"/attachments/{record['hash_id']}")) == 1
    job = data(client_without_workers.get(f"/jobs/{job['id']}"))
    assert (job["status"], job["error"]["code"]) == ("cancelled", "attachment.deleted")
    assert objects_of(stack_without_workers, record) == []


@pytest.mark.parametrize(
    ("error", "status", "retry_after"),
    [
        (IMAGE_UNREADABLE(), 422, None),
        (JOB_CANCELLED(), 409, None),
        (JOB_BROKE(), 500, None),
        (JOB_GIVEN_UP(reason="It rains.", hours=24), 503, "5"),
    ],
)
def test_waiting_upload_returns_the_error_status_of_its_failed_job(
    stack_without_workers: Stack,
    client_without_workers: httpx2.Client,
    error: DomainError,
    status: int,
    retry_after: str | None,
) -> None:
    with ThreadPoolExecutor() as pool:
        upload = pool.submit(send, client_without_workers, prefer="wait=30")
        eventually(lambda: data(client_without_workers.get("/jobs"))["items"], what="the job")
        [job] = data(client_without_workers.get("/jobs"))["items"]
        fail_job(stack_without_workers, job["id"], error)
        reply = upload.result()
    problem(reply, status, error.code)
    assert reply.headers.get("retry-after") == retry_after


IMAGE_TEXTS = {"alt_text": "Boats at dusk", "title": "The harbour", "tags": ["harbour", "Lisbon"]}


def test_attachment_patch_changes_only_the_given_texts(
    client: httpx2.Client,
) -> None:
    record = data(send(client))
    path = f"/attachments/{record['hash_id']}"
    changed_record = data(client.patch(path, json=IMAGE_TEXTS))
    assert changed_record == record | IMAGE_TEXTS | {"updated_at": changed_record["updated_at"]}
    assert changed_record["updated_at"] > record["updated_at"]
    assert data(client.get(path)) == changed_record
    assert data(client.get("/attachments"))["items"] == [changed_record]
    for body, expected in (
        ({}, IMAGE_TEXTS),
        ({"title": "Boats"}, IMAGE_TEXTS | {"title": "Boats"}),
        ({"title": None}, IMAGE_TEXTS | {"title": None}),
        # A decorative image has an empty alt text, which differs from a missing alt text.
        ({"alt_text": ""}, IMAGE_TEXTS | {"title": None, "alt_text": ""}),
        ({"tags": []}, {"title": None, "alt_text": "", "tags": []}),
        ({"size": 1, "user_id": 1, "status": 3}, {"title": None, "alt_text": "", "tags": []}),
    ):
        changed_record = data(client.patch(path, json=body))
        assert {name: changed_record[name] for name in IMAGE_TEXTS} == expected
        assert changed_record["status"] == 2


def test_attachment_tags_are_deduplicated_ignoring_case(client: httpx2.Client) -> None:
    path = f"/attachments/{data(send(client))['hash_id']}"
    tags = ["Lisbon", " sea ", "LISBON", "lisbon", "Straße", "STRASSE", "海"]
    stored_tags = data(client.patch(path, json={"tags": tags}))["tags"]
    assert stored_tags == ["Lisbon", "sea", "Straße", "海"]


def test_attachment_texts_and_tags_over_their_limits_are_rejected(client: httpx2.Client) -> None:
    path = f"/attachments/{data(send(client))['hash_id']}"
    longest = {"alt_text": "é" * 2000, "title": "é" * 255, "tags": [f"{n:064}" for n in range(50)]}
    data(client.patch(path, json=longest))
    for body, field in [
        ({"alt_text": "x" * 2001}, "body.alt_text"),
        ({"alt_text": 7}, "body.alt_text"),
        ({"alt_text": "a\0b"}, "body.alt_text"),
        ({"title": "x" * 256}, "body.title"),
        ({"tags": None}, "body.tags"),
        ({"tags": "sea"}, "body.tags"),
        ({"tags": [f"tag {number}" for number in range(51)]}, "body.tags"),
        ({"tags": ["sea", "  "]}, "body.tags[1]"),
        ({"tags": ["x" * 65]}, "body.tags[0]"),
        ({"tags": ["a\0b"]}, "body.tags[0]"),
        ({"tags": ["a\nb"]}, "body.tags[0]"),
        ({"tags": [7]}, "body.tags[0]"),
    ]:
        error = problem(client.patch(path, json=body), 422, "body.invalid")
        assert error["errors"][0]["field"] == field
    unchanged_record = data(client.get(path))
    assert {name: unchanged_record[name] for name in IMAGE_TEXTS} == longest


def test_attachment_texts_set_before_conversion_are_kept_after_conversion(
    client: httpx2.Client,
) -> None:
    record = data(send(client, prefer="respond-async", renditions="1"), 200, 202)
    path = f"/attachments/{record['hash_id']}"
    data(client.patch(path, json=IMAGE_TEXTS))
    eventually(lambda: data(client.get(path))["status"] == 2, what="the conversion")
    converted_record = data(client.get(path))
    assert {name: converted_record[name] for name in IMAGE_TEXTS} == IMAGE_TEXTS
    assert converted_record["renditions"]


@contextmanager
def assert_nothing_is_stored(stack: Stack, client: httpx2.Client) -> Iterator[None]:
    """Check that the rejected uploads in the block leave no record and no stored object."""
    keys_before = set(stack.stored())
    yield
    assert data(client.get("/attachments"))["items"] == []
    removal = "the removal of the rejected upload's objects"
    eventually(lambda: set(stack.stored()) <= keys_before, what=removal)


def pad_image(length: int) -> bytes:
    """Return a JPEG file of ``length`` bytes. Decoders ignore the zero bytes at its end."""
    return photo(64, 64).ljust(length, b"\0")


FORM_CONTENT_TYPE = MULTIPART_HEADER["Content-Type"]
PNG_IMAGE = encoded("PNG")
BODIES_BY_ERROR_CODE: dict[str, list[tuple[str, bytes]]] = {
    "attachment.file_missing": [
        (FORM_CONTENT_TYPE, make_multipart()),
        (FORM_CONTENT_TYPE, make_multipart(b'name="file"', PNG_IMAGE)),
        (FORM_CONTENT_TYPE, make_multipart(b'name="picture"; filename="a.png"', PNG_IMAGE)),
        (FORM_CONTENT_TYPE, make_multipart(b'name="file"; filename=""', b"")),
    ],
    "attachment.several_files": [
        (FORM_CONTENT_TYPE, make_multipart(*(b'name="file"; filename="a.png"', PNG_IMAGE) * 2)),
    ],
    "body.malformed": [(FORM_CONTENT_TYPE, make_multipart(*[b'name="a"', b""] * 5000))],
    "body.not_multipart": [
        (content_type, PNG_IMAGE)
        for content_type in (
            "image/png",
            "application/json",
            "application/x-www-form-urlencoded",
            "multipart/form-data",
            "multipart/mixed; boundary=x",
        )
    ],
}


@pytest.mark.parametrize("code", BODIES_BY_ERROR_CODE)
def test_image_upload_rejects_bodies_that_are_not_a_form_with_exactly_one_file(
    stack: Stack, client: httpx2.Client, code: str
) -> None:
    with assert_nothing_is_stored(stack, client):
        for content_type, body in BODIES_BY_ERROR_CODE[code]:
            headers = {"Content-Type": content_type}
            reply = client.post("/attachments", content=body, headers=headers)
            problem(reply, 400, code)
        problem(client.post("/attachments"), 400, "body.not_multipart")


def test_image_upload_rejects_broken_multipart_bodies(stack: Stack, client: httpx2.Client) -> None:
    complete_body = make_multipart(b'name="file"; filename="a.png"', encoded("PNG"))
    with assert_nothing_is_stored(stack, client):
        for body in (
            b"",
            b"garbage",
            complete_body[:40],
            complete_body[: len(complete_body) // 2],
            complete_body[:-30],
        ):
            reply = client.post("/attachments", content=body, headers=MULTIPART_HEADER)
            assert reply.status_code == 400, body
            assert reply.json()["code"] in ("body.malformed", "attachment.file_missing")


def test_image_upload_rejects_unsupported_extensions_and_contents(
    stack: Stack, client: httpx2.Client
) -> None:
    with assert_nothing_is_stored(stack, client):
        for name in ["a.svg", "a.png.exe", "a", ".png", "png", "a.png."]:
            problem(send(client, name=name), 415, "attachment.unsupported_type")
        for content in (encoded("TIFF"), b"<svg xmlns='http://www.w3.org/2000/svg'/>", b"x"):
            problem(send(client, content), 415, "attachment.unsupported_type")
        problem(send(client, b""), 422, "attachment.empty")


def test_image_upload_accepts_five_megabytes_and_rejects_larger_images(
    stack: Stack, client: httpx2.Client
) -> None:
    assert MAX_IMAGE_BYTES == 5 * 1024 * 1024
    with assert_nothing_is_stored(stack, client):
        for extra in (1, 1000, 64 * 1024, 1024 * 1024):
            reply = send(client, pad_image(MAX_IMAGE_BYTES + extra), "a.jpg")
            problem(reply, 413, "attachment.too_large")
    record = data(send(client, pad_image(MAX_IMAGE_BYTES), "a.jpg"))
    assert record["original_size"] == MAX_IMAGE_BYTES


def test_image_upload_of_an_unreadable_image_is_rejected_and_stores_nothing(
    stack: Stack, client: httpx2.Client
) -> None:
    with assert_nothing_is_stored(stack, client):
        body = problem(send(client, photo(200, 200)[:-2000]), 422, "image.truncated")
        # The owner can still see the image's error, because the upload's failed job is kept.
        [job] = data(client.get("/jobs"))["items"]
        assert (job["status"], job["error"]["code"]) == ("failed", body["code"])


def test_image_that_fails_conversion_is_marked_failed_and_its_original_deleted(
    stack: Stack, client: httpx2.Client
) -> None:
    # The worker would reject the truncated image within milliseconds. Freeze the worker, so that
    # the job is still in progress when the API responds.
    [worker] = [each for each in stack.processes if each.name == "worker-media-bulk-export"]
    with frozen(worker.pid):
        reply = send(client, photo(1500, 1500)[:-5000], "a.jpg", prefer="respond-async")
        record = data(reply, 202)
    path = reply.headers["location"]

    def find_failed_record() -> dict[str, Any] | None:
        current: dict[str, Any] = data(client.get(path))
        return current if current["status"] == 3 else None

    failed = eventually(find_failed_record, what="the failure")
    assert failed["error"]["code"].startswith("image.")
    assert failed["error"]["message"]
    assert (failed["size"], failed["checksum"], failed["width"]) == (0, "", None)
    problem(client.get(f"/{failed['pathname']}"), 404, "media.not_found")
    eventually(lambda: not objects_of(stack, record), what="the removal of the original")
    assert data(client.delete(path)) == 1


@pytest.mark.parametrize("name", ["encrypted", "renditions"])
def test_image_upload_rejects_malformed_boolean_parameters(
    stack: Stack, client: httpx2.Client, name: str
) -> None:
    with assert_nothing_is_stored(stack, client):
        for malformed_flag in ["", "yes", "2", " true", "true,"]:
            parameters: dict[str, Any] = {name: malformed_flag}
            body = problem(send(client, **parameters), 400, "request.invalid")
            assert [each["field"] for each in body["errors"]] == [f"query.{name}"]


@pytest.mark.parametrize(
    ("flag", "expected"), [("TRUE", True), ("1", True), ("False", False), ("0", False)]
)
def test_image_upload_accepts_the_encrypted_flag_in_any_case(
    client_without_workers: httpx2.Client, flag: str, expected: bool
) -> None:
    record = data(send(client_without_workers, prefer="respond-async", encrypted=flag), 202)
    assert record["encrypted"] is expected
