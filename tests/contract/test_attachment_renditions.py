"""Tests of renditions, which are smaller copies of an uploaded image."""

import hashlib
import io
from typing import Any

import httpx2
import pytest
from PIL import Image

from devstack.harness.stack import Stack
from tests.support.http.replies import data, objects_of, problem, send
from tests.support.images.links import new_link, request_link
from tests.support.images.pictures import encoded, photo
from tests.support.stack.without_workers import CDN

IMAGE_SIZE = (1400, 700)


@pytest.fixture(scope="module")
def attachment_with_renditions(stack: Stack) -> dict[str, Any]:
    """An uploaded image with smaller copies, shared by all tests in this module."""
    with stack.client(stack.create_owner().key) as client:
        return dict(data(send(client, photo(*IMAGE_SIZE), "p.jpg", renditions="1")))


@pytest.fixture
def encrypted_attachment_with_renditions(client: httpx2.Client) -> dict[str, Any]:
    """An encrypted image whose smaller copies are encrypted too."""
    return dict(data(send(client, photo(700, 350), "p.jpg", renditions="1", encrypted="1")))


def test_attachment_record_lists_each_rendition_with_size_type_and_url(
    stack: Stack, attachment_with_renditions: dict[str, Any]
) -> None:
    assert (attachment_with_renditions["width"], attachment_with_renditions["height"]) == IMAGE_SIZE
    renditions = attachment_with_renditions["renditions"]
    assert [each["name"] for each in renditions] == ["320", "640", "1280", "mail"]
    sizes = [(each["width"], each["height"]) for each in renditions]
    assert sizes == [(320, 160), (640, 320), (1280, 640), (1280, 640)]
    assert [each["mime_type"] for each in renditions] == [*3 * ["image/webp"], "image/jpeg"]
    for each in renditions:
        ending = "jpg" if each["name"] == "mail" else "webp"
        assert (
            each["filename"] == f"{attachment_with_renditions['hash_id']}-{each['name']}.{ending}"
        )
        assert each["pathname"] == f"media/{each['filename']}"
        assert each["view_url"] == f"{stack.api_url}/{each['pathname']}"


def test_rendition_file_matches_its_record_and_is_cached_as_immutable(
    stranger: httpx2.Client, attachment_with_renditions: dict[str, Any]
) -> None:
    for each in attachment_with_renditions["renditions"]:
        reply = stranger.get(each["view_url"])
        assert reply.status_code == 200
        assert hashlib.sha256(reply.content).hexdigest() == each["checksum"]
        assert len(reply.content) == each["size"]
        assert reply.headers["content-type"] == each["mime_type"]
        assert reply.headers["etag"] == f'"{each["checksum"]}"'
        assert "immutable" in reply.headers["cache-control"]
        assert reply.headers["content-security-policy"] == "sandbox"
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert each["filename"] in reply.headers["content-disposition"]
        image = Image.open(io.BytesIO(reply.content))
        assert (image.size, image.get_format_mimetype()) == (
            (each["width"], each["height"]),
            each["mime_type"],
        )


def test_rendition_supports_range_and_conditional_requests(
    stranger: httpx2.Client, attachment_with_renditions: dict[str, Any]
) -> None:
    rendition = attachment_with_renditions["renditions"][0]
    content = stranger.get(rendition["view_url"]).content
    reply = stranger.get(rendition["view_url"], headers={"Range": "bytes=50-59"})
    assert (reply.status_code, reply.content) == (206, content[50:60])
    assert reply.headers["content-range"] == f"bytes 50-59/{rendition['size']}"
    reply_beyond_end = stranger.get(
        rendition["view_url"], headers={"Range": f"bytes={rendition['size']}-"}
    )
    assert reply_beyond_end.status_code == 416
    conditional_reply = stranger.get(
        rendition["view_url"], headers={"If-None-Match": f'"{rendition["checksum"]}"'}
    )
    assert conditional_reply.status_code == 304


@pytest.mark.parametrize("params", [{}, {"renditions": "0"}])
def test_image_upload_creates_no_renditions_unless_requested(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, params: dict[str, Any]
) -> None:
    record = data(send(client, photo(700, 350), "p.jpg", **params))
    assert record["renditions"] == []
    thumbnail = f"renditions/{record['hash_id']}/{record['thumbnail']['filename']}"
    assert sorted(objects_of(stack, record)) == [record["pathname"], thumbnail]
    url = f"/media/{record['hash_id']}-320.webp"
    problem(stranger.get(url), 404, "media.not_found")


def test_icon_and_small_image_only_get_the_mail_rendition(client: httpx2.Client) -> None:
    icon = data(send(client, encoded("ICO"), "i.ico", renditions="1"))
    small = data(send(client, encoded("PNG", "RGBA"), "s.png", renditions="1"))
    for record in (icon, small):
        (mail_rendition,) = record["renditions"]
        assert (mail_rendition["name"], mail_rendition["width"]) == ("mail", record["width"])


@pytest.mark.parametrize("name", ["{0}-321.webp", "{0}-320.jpg", "{0}-mail.webp", "{0}-.webp"])
def test_unknown_rendition_name_returns_404(
    stranger: httpx2.Client, attachment_with_renditions: dict[str, Any], name: str
) -> None:
    url = f"/media/{name.format(attachment_with_renditions['hash_id'])}"
    problem(stranger.get(url), 404, "media.not_found")


def test_view_url_of_unencrypted_rendition_uses_the_configured_cdn(
    stack_without_workers: Stack, client_without_workers: httpx2.Client
) -> None:
    mark_ready = (
        "UPDATE attachments SET status = 2, size = 1, checksum = repeat('0', 64), width = 1,"
        " height = 1, renditions = jsonb_build_array(jsonb_build_object('name', '320', 'filename',"
        " hash_id || '-320.webp', 'mime_type', 'image/webp', 'size', 1, 'checksum', '', 'width', 1,"
        " 'height', 1)) WHERE id = %s"
    )
    for encrypted, base_url in (("0", CDN), ("1", stack_without_workers.api_url)):
        reply = send(
            client_without_workers, prefer="respond-async", renditions="1", encrypted=encrypted
        )
        record = data(reply, 202)
        stack_without_workers.query(mark_ready, record["id"])
        ready_record = data(client_without_workers.get(f"/attachments/{record['hash_id']}"))
        [rendition] = ready_record["renditions"]
        assert rendition["view_url"] == f"{base_url}/media/{record['hash_id']}-320.webp"


def test_renditions_of_encrypted_attachment_are_stored_encrypted(
    stack: Stack, client: httpx2.Client, encrypted_attachment_with_renditions: dict[str, Any]
) -> None:
    stored_contents = [
        stack.resources.objects.get(key)
        for key in objects_of(stack, encrypted_attachment_with_renditions)
    ]
    assert len(stored_contents) == 5
    record = encrypted_attachment_with_renditions
    for each in (record["thumbnail"], *record["renditions"]):
        plain_content = client.get(each["view_url"]).content
        assert not any(
            plain_content[100:132] in stored_content for stored_content in stored_contents
        )


def test_encrypted_renditions_swapped_in_storage_are_reported_as_damaged(
    stack: Stack, client: httpx2.Client, encrypted_attachment_with_renditions: dict[str, Any]
) -> None:
    narrow, wide, _ = encrypted_attachment_with_renditions["renditions"]
    objects = stack.resources.objects
    folder = f"renditions/{encrypted_attachment_with_renditions['hash_id']}"
    wide_content = objects.get(f"{folder}/{wide['filename']}")
    objects.put(f"{folder}/{narrow['filename']}", wide_content, "image/webp")
    problem(client.get(narrow["view_url"]), 500, "media.damaged")


def test_signed_link_to_a_rendition_opens_no_other_file(
    client: httpx2.Client,
    stranger: httpx2.Client,
    encrypted_attachment_with_renditions: dict[str, Any],
) -> None:
    narrow, wide, _ = encrypted_attachment_with_renditions["renditions"]
    url = new_link(client, encrypted_attachment_with_renditions, filename=narrow["filename"])
    reply = stranger.get(url)
    assert hashlib.sha256(reply.content).hexdigest() == narrow["checksum"]
    for other_path in (wide["pathname"], encrypted_attachment_with_renditions["pathname"]):
        assert stranger.get(url.copy_with(path=f"/{other_path}")).status_code == 404
    query = new_link(client, encrypted_attachment_with_renditions).query
    assert stranger.get(f"{narrow['view_url']}?{query.decode()}").status_code == 404


def test_signed_link_request_for_a_file_of_another_attachment_returns_404(
    client: httpx2.Client, encrypted_attachment_with_renditions: dict[str, Any]
) -> None:
    other_attachment = data(send(client, photo(700, 350), "p.jpg", renditions="1", encrypted="1"))
    for filename in (
        other_attachment["filename"],
        other_attachment["renditions"][0]["filename"],
        "../x",
        "",
    ):
        problem(
            request_link(client, encrypted_attachment_with_renditions, filename=filename),
            404,
            "media.not_found",
        )
