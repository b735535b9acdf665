import hashlib
import re

import httpx
import pytest

from tests.contract.conftest import CDN
from tests.contract.replies import data, objects_of, problem, send
from tests.contract.test_replies import TIMESTAMP
from tests.pictures import encoded, photo
from tests.stack import Owner, Stack

FIELDS = {
    *("id", "hash_id", "size", "mime_type", "pathname", "filename", "status"),
    *("original_mime_type", "checksum", "checksum_method", "created_at", "updated_at", "view_url"),
    *("user_id", "encrypted", "width", "height", "frames", "blurhash", "original_filename"),
    *("original_size", "original_checksum", "error", "renditions", "alt_text", "title", "tags"),
}
MIME_TYPES = {"PNG": "png", "JPEG": "jpeg", "GIF": "gif", "WEBP": "webp", "ICO": "x-icon"}


def test_record_has_exactly_the_fields_of_the_contract(
    stack: Stack, client: httpx.Client, owner: Owner
) -> None:
    original = photo(320, 200)
    record = data(send(client, original, "Holiday photo.jpeg"))
    assert set(record) == FIELDS
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
    stored = httpx.get(record["view_url"]).content
    assert (record["size"], record["checksum_method"]) == (len(stored), "sha256")
    assert record["checksum"] == hashlib.sha256(stored).hexdigest()


def test_only_the_converted_file_is_kept(stack: Stack, client: httpx.Client) -> None:
    record = data(send(client))
    assert objects_of(stack, record) == [record["pathname"]]


def test_record_is_read_and_listed_as_it_was_answered(client: httpx.Client) -> None:
    record = data(send(client))
    assert data(client.get(f"/attachments/{record['hash_id']}")) == record
    assert data(client.get("/attachments"))["items"] == [record]


@pytest.mark.parametrize(
    ("file_format", "name", "stored"),
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
def test_six_extensions_in_any_case_and_the_bytes_decide(
    client: httpx.Client, file_format: str, name: str, stored: str
) -> None:
    record = data(send(client, encoded(file_format), name))
    assert record["original_mime_type"] == f"image/{MIME_TYPES[file_format]}"
    assert record["filename"].endswith(f".{stored}")
    assert record["mime_type"] == f"image/{stored}"
    reply = httpx.get(record["view_url"])
    assert reply.headers["content-type"] == f"image/{stored}"


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("C:\\Users\\me\\Bild.png", "Bild.png"),
        ("../../etc/Bild.png", "Bild.png"),
        ("häuser & <b>\u65e5\u672c\u8a9e</b> \U0001f389.png", "b> \U0001f389.png"),
        ("x" * 300 + ".png", "x" * 251 + ".png"),
    ],
    ids=["windows", "parents", "unicode", "long"],
)
def test_original_filename_is_the_last_part_of_what_was_sent(
    client: httpx.Client, sent: str, kept: str
) -> None:
    assert data(send(client, name=sent))["original_filename"] == kept


def test_filename_in_another_encoding_is_no_reason_to_refuse(client: httpx.Client) -> None:
    body = multipart(b'name="file"; filename="h\xe4user.png"', encoded("PNG"))
    record = data(client.post("/attachments", content=body, headers=MULTIPART))
    assert record["original_filename"] == "h\ufffduser.png"


MULTIPART = {"Content-Type": 'multipart/form-data; boundary="cut here"'}


def multipart(*parts: bytes) -> bytes:
    """A body by hand: dispositions and contents in turn."""
    pairs = zip(parts[::2], parts[1::2], strict=True)
    written = [
        b"--cut here\r\nContent-Disposition: form-data; %b\r\n\r\n%b\r\n" % pair for pair in pairs
    ]
    return b"".join(written) + b"--cut here--\r\n"


def test_other_parts_of_the_form_are_ignored(client: httpx.Client) -> None:
    body = multipart(
        b'name="file"', b"a field, no file",
        b'name="caption"', b"Sea",
        b'name="file"; filename="a.png"', encoded("PNG"),
        b'name="tags"', b"true",
    )  # fmt: skip
    record = data(client.post("/attachments", content=body, headers=MULTIPART))
    assert record["encrypted"] is False


def test_view_url_of_plain_media_is_the_cdns_where_there_is_one(
    quiet_client: httpx.Client, quiet: Stack
) -> None:
    plain = data(send(quiet_client, prefer="respond-async"), 202)
    assert plain["view_url"] == f"{CDN}/{plain['pathname']}"
    secret = data(send(quiet_client, prefer="respond-async", encrypted="1"), 202)
    assert secret["view_url"] == f"{quiet.api_url}/{secret['pathname']}"


def test_delete_removes_record_and_file(stack: Stack, client: httpx.Client) -> None:
    record = data(send(client))
    path = f"/attachments/{record['hash_id']}"
    assert data(client.delete(path)) == 1
    problem(client.get(path), 404, "attachment.not_found")
    problem(client.delete(path), 404, "attachment.not_found")
    problem(client.get(f"/{record['pathname']}"), 404, "media.not_found")
    assert data(client.get("/attachments"))["items"] == []
    assert stack.query("SELECT 1 FROM attachments WHERE id = %s", record["id"]) == []
    assert objects_of(stack, record) == []


def test_delete_before_the_conversion_ends_its_job_too(
    quiet: Stack, quiet_client: httpx.Client
) -> None:
    record = data(send(quiet_client, prefer="respond-async"), 202)
    [job] = data(quiet_client.get("/jobs"))["items"]
    assert data(quiet_client.delete(f"/attachments/{record['hash_id']}")) == 1
    ended = data(quiet_client.get(f"/jobs/{job['id']}"))
    assert (ended["status"], ended["error"]["code"]) == ("cancelled", "attachment.deleted")
    assert objects_of(quiet, record) == []
