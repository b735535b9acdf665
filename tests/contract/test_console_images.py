"""Tests of the console pages on which owners upload, describe, share and delete images."""

import html
import re
from typing import Any

import httpx2
import pytest

from core.errors.media import IMAGE_CRASHED, IMAGE_TIMEOUT
from devstack.harness.polling import eventually
from devstack.harness.stack import Stack, plain_client
from tests.support.http.replies import data, objects_of, problem, send
from tests.support.images.pictures import encoded, noise, photo
from tests.support.imports.bulk import fail_job, newest_job
from tests.support.lists.subscribers import new_list
from tests.support.people.consoles import (
    OwnerAtConsole,
    at_console,
    forms_of,
    heading,
    read_error,
    read_page,
)

IMAGES_PATH = "/console/images"


def send_upload_form(
    console: OwnerAtConsole,
    content: bytes | None = None,
    name: str = "harbour.png",
    **form_values: str,
) -> httpx2.Response:
    """Send the form for a new image, and return the response."""
    page = console.visitor.get(IMAGES_PATH)
    (action, values), *_ = forms_of(page)
    values.pop("file")
    file = (name, encoded("PNG") if content is None else content)
    return console.visitor.client.post(action, data={**values, **form_values}, files={"file": file})


def upload_image(console: OwnerAtConsole, content: bytes | None = None, **form_values: str) -> str:
    """Upload an image, and return the path of its page."""
    reply = send_upload_form(console, content, **form_values)
    assert reply.status_code == 303, reply.text
    return str(httpx2.URL(reply.headers["location"]).path)


def read_image_urls(text: str) -> list[str]:
    return [html.unescape(each) for each in re.findall(r'<img src="([^"]+)"', text)]


def read_copy_fields(text: str) -> dict[str, str]:
    """Map the label of each field that owners can copy on an image page to the field's text.

    The page repeats some labels, because it also has fields for smaller copies of the image. For a
    repeated label, the function returns the text of the first field, which belongs to the image
    itself.
    """
    label_value_pairs = re.findall(
        r'<label for="[\w-]+">([^<]+)</label><input id="[^"]+" value="([^"]*)"', text
    )
    texts: dict[str, str] = {}
    for label, value in label_value_pairs:
        texts.setdefault(label, html.unescape(value))
    return texts


def test_console_uploads_an_image_and_shows_a_thumbnail(console: OwnerAtConsole) -> None:
    assert "No images yet" in console.see(IMAGES_PATH)
    path = upload_image(console, photo(900, 600), name="harbour.jpg")
    text = console.see(path)
    assert heading(text) == "harbour.jpg"
    assert "“harbour.jpg” was uploaded." in text
    [thumbnail_url] = read_image_urls(console.see(IMAGES_PATH))
    assert thumbnail_url.endswith("-thumbnail.webp")
    reply = httpx2.get(thumbnail_url, timeout=30.0)
    assert reply.headers["content-type"] == "image/webp"
    assert len(data(console.api.get("/attachments"))["items"]) == 1


def test_console_shows_the_thumbnail_of_an_image_uploaded_through_the_api(
    console: OwnerAtConsole,
) -> None:
    record = data(send(console.api, noise((1_500, 1_000), quality=90)))
    text = console.see(IMAGES_PATH)
    assert read_image_urls(text) == [record["thumbnail"]["view_url"]]
    assert "no alt text" in text
    assert re.search(r'<rect [^>]*fill="#[0-9a-f]{6}"', text)


@pytest.mark.parametrize("encrypted", ["0", "1"])
def test_first_view_of_an_image_of_release_1_0_0_creates_its_missing_thumbnail(
    stack: Stack, console: OwnerAtConsole, encrypted: str
) -> None:
    record = data(send(console.api, photo(900, 600), encrypted=encrypted))
    [key] = [each for each in objects_of(stack, record) if each.startswith("renditions/")]
    stack.resources.objects.remove(key)
    stack.query("UPDATE attachments SET renditions = NULL WHERE id = %s", record["id"])
    path = f"/attachments/{record['hash_id']}"
    record_before = data(console.api.get(path))
    assert record_before["thumbnail"] is None
    assert read_image_urls(console.see(IMAGES_PATH)) == []
    record_after = eventually(
        lambda: _find_record_with_thumbnail(console, path), what="the thumbnail"
    )
    thumbnail = record_after["thumbnail"]
    assert record_after == record_before | {"thumbnail": thumbnail}
    names = ("filename", "width", "height", "view_url")
    assert [thumbnail[name] for name in names] == [record["thumbnail"][name] for name in names]
    [thumbnail_url] = read_image_urls(console.see(IMAGES_PATH))
    assert console.visitor.client.get(thumbnail_url).headers["content-type"] == "image/webp"
    kinds = [each["kind"] for each in data(console.api.get("/jobs"))["items"]]
    assert kinds == ["attachment.process"]
    removals = "SELECT 1 FROM object_removals WHERE key LIKE %s"
    assert stack.query(removals, f"%{record['hash_id']}-thumbnail%") == []


def test_repeated_views_enqueue_one_job_per_missing_thumbnail(
    stack_without_workers: Stack,
) -> None:
    stack = stack_without_workers
    with at_console(stack) as console:
        record = data(send(console.api, prefer="respond-async"), 202)
        mark_ready = "UPDATE attachments SET status = 2, size = 1, checksum = repeat('0', 64), "
        mark_ready += "width = 9, height = 9 WHERE id = %s"
        stack.query(mark_ready, record["id"])
        for _ in range(3):
            console.see(IMAGES_PATH)
    count_jobs = "SELECT count(*) FROM jobs WHERE kind = 'attachment.thumbnail' AND subject_id = %s"
    assert stack.query(count_jobs, record["id"]) == [(1,)]


def test_image_that_took_too_much_time_can_be_processed_again_by_api_and_console(
    stack_without_workers: Stack,
) -> None:
    stack = stack_without_workers
    with at_console(stack) as console:
        record = data(send(console.api, prefer="respond-async"), 202)
        job_path = f"/jobs/{newest_job(console.api)['id']}"
        path = f"{IMAGES_PATH}/{record['hash_id']}"
        fail_job(stack, newest_job(console.api)["id"], IMAGE_TIMEOUT(seconds=30))
        assert data(console.api.post(f"{job_path}/retry")) == 1
        assert data(console.api.get(job_path))["status"] == "queued"
        fail_job(stack, newest_job(console.api)["id"], IMAGE_TIMEOUT(seconds=30))
        text = console.see(path)
        assert "The image takes too long to process" in text
        assert f"{path}/delete" in text
        # The page offers another attempt and the upload of a replacement, and has no fields for
        # the alt text and the tags.
        [(action, values), (upload_action, upload)] = forms_of(console.visitor.get(path))
        assert (upload_action, action) == (IMAGES_PATH, f"{path}/retry")
        assert upload.keys() == {"csrf_token", "file"}
        text = console.see(IMAGES_PATH)
        failed_images = re.findall(r"1 image couldn’t be processed:</b>\s*<a href=\"([^\"]+)", text)
        assert [each.removeprefix(stack.api_url) for each in failed_images] == [path]
        assert 'class="grid"' not in text
        assert console.visitor.client.post(action, data=values).status_code == 303
        assert "Processing" in console.see(path)
        assert data(console.api.get(job_path))["status"] == "queued"


def test_invalid_image_cannot_be_processed_again(stack_without_workers: Stack) -> None:
    stack = stack_without_workers
    with at_console(stack) as console:
        record = data(send(console.api, prefer="respond-async"), 202)
        job = newest_job(console.api)
        path = f"{IMAGES_PATH}/{record['hash_id']}"
        fail_job(stack, job["id"], IMAGE_CRASHED(cause="signal SIGSEGV"))
        reply = console.api.post(f"/jobs/{job['id']}/retry")
        detail = problem(reply, 409, "job.not_retryable")["detail"]
        expected = "Jobs of the kind attachment.process with the status failed can't be retried."
        assert detail == expected
        assert "Try again" not in console.see(path)


def _find_record_with_thumbnail(console: OwnerAtConsole, path: str) -> dict[str, Any] | None:
    record: dict[str, Any] = data(console.api.get(path))
    return record if record["thumbnail"] else None


def test_console_offers_link_and_html_and_markdown_of_an_image_to_copy(
    console: OwnerAtConsole,
) -> None:
    path = upload_image(console)
    console.do(path, alt_text='A "boat" [at] sea & <more>', title="", tags="")
    texts = read_copy_fields(console.see(path))
    link = texts["Link"]
    assert httpx2.get(link, timeout=30.0).status_code == 200
    escaped_alt_text = "A &quot;boat&quot; [at] sea &amp; &lt;more&gt;"
    assert texts["HTML"] == f'<img src="{link}" alt="{escaped_alt_text}" width="64" height="48">'
    assert texts["Markdown"] == f'![A "boat" \\[at\\] sea & <more>]({link})'


def test_encrypted_image_is_visible_only_to_its_owner_and_with_a_signed_link(
    console: OwnerAtConsole,
) -> None:
    path = upload_image(console, photo(400, 300), name="secret.jpg", encrypted="on")
    [thumbnail_url] = read_image_urls(console.see(IMAGES_PATH))
    assert console.visitor.client.get(thumbnail_url).status_code == 200
    with plain_client() as stranger:
        assert stranger.get(thumbnail_url).status_code == 404
        text = console.see(path)
        assert "Markdown" not in text
        assert "Share this image" in text
        link_page = read_page(console.send(f"{path}/link", lasts="3600"))
        link = read_copy_fields(link_page)["Anyone with this link can see the image"]
        assert stranger.get(link).status_code == 200
    assert "in 1 hour" in link_page
    rejected_reply = console.send(f"{path}/link", lasts="31536000")
    assert "Choose one of the listed times" in read_error(read_page(rejected_reply, 422), "lasts")
    reply_without_token = console.visitor.client.post(f"{path}/link", data={"lasts": "3600"})
    assert reply_without_token.status_code == 403
    assert "signature=" not in reply_without_token.text
    console.see(f"{upload_image(console)}/link", 409)


def test_console_changes_image_texts_and_keeps_the_input_of_a_rejected_change(
    console: OwnerAtConsole,
) -> None:
    path = upload_image(console)
    text = console.do(path, alt_text="Boats", title="The harbour", tags="sea\r\nSea\r\n boats ")
    assert heading(text) == "The harbour"
    [record] = data(console.api.get("/attachments"))["items"]
    assert (record["alt_text"], record["title"]) == ("Boats", "The harbour")
    assert record["tags"] == ["sea", "boats"]
    reply = console.send(path, title="x" * 256, alt_text="Other boats")
    assert read_error(read_page(reply, 422), "title")
    assert "Other boats" in reply.text
    [unchanged_record] = data(console.api.get("/attachments"))["items"]
    assert unchanged_record == record


def test_console_finds_images_by_name_title_and_alt_text(console: OwnerAtConsole) -> None:
    for name in ("harbour 100%.jpg", "garden.jpg"):
        upload_image(console, photo(40, 30), name=name)
    path = upload_image(console, photo(40, 30), name="tea.jpg")
    console.send(path, alt_text="Boats in the HARBOUR", title="", tags="")

    def list_names(words: str) -> list[str]:
        text = console.see(IMAGES_PATH, q=words)
        return re.findall(r'<span class="name"><bdi>([^<]+)', text)

    assert list_names("Harbour") == ["tea.jpg", "harbour 100%.jpg"]
    assert list_names("0%") == ["harbour 100%.jpg"]
    assert list_names("%") == ["harbour 100%.jpg"]
    assert "No matching images" in console.see(IMAGES_PATH, q="kitchen")


def test_console_shows_image_upload_errors_next_to_the_file_field(console: OwnerAtConsole) -> None:
    for name, content, status in (
        ("", b"", 400),
        ("words.png", b"no picture", 415),
        ("cut.png", encoded("PNG")[:60], 422),
    ):
        reply = send_upload_form(console, content, name=name, encrypted="on")
        text = read_page(reply, status)
        assert read_error(text, "file")
        assert forms_of(reply)[0][1]["encrypted"] == "on"
        assert "No images yet" in text


def test_console_rejects_a_too_large_image_with_an_error_page(console: OwnerAtConsole) -> None:
    read_page(send_upload_form(console, encoded("PNG") + b"\0" * 6_000_000), 413)
    assert data(console.api.get("/attachments"))["items"] == []


def test_console_deletes_an_image_after_confirmation(console: OwnerAtConsole) -> None:
    path = upload_image(console)
    assert heading(console.see(f"{path}/delete")) == "Delete harbour.png?"
    assert len(data(console.api.get("/attachments"))["items"]) == 1
    assert "“harbour.png” was deleted." in console.do(f"{path}/delete")
    assert data(console.api.get("/attachments"))["items"] == []
    console.see(path, 404)
    console.see("/console/images/never-was", 404)


def test_console_warns_before_the_logo_of_a_list_is_deleted(console: OwnerAtConsole) -> None:
    path = upload_image(console)
    mailing_list = new_list(console.api, title="Tea & more", logo_hash_id=path.rpartition("/")[2])
    page = console.see(f"{path}/delete")
    assert f'/console/lists/{mailing_list["id"]}/public"><bdi>Tea &amp; more</bdi></a>' in page
    data(console.api.patch(f"/lists/{mailing_list['id']}", json={"logo_hash_id": None}))
    assert "logo" not in console.see(f"{path}/delete")


def test_console_allows_images_but_no_scripts_from_other_origins(
    console: OwnerAtConsole,
) -> None:
    policy = console.visitor.get(IMAGES_PATH).headers["content-security-policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["img-src"].startswith("'self' data: http")
    assert rules["script-src"] == rules["connect-src"] == "'self'"
