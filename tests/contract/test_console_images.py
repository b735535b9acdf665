"""The console's pages of images: what an owner adds, shows elsewhere, describes and deletes."""

import html
import re
from typing import Any

import httpx2
import pytest

from devstack.harness.polling import eventually
from devstack.harness.stack import Stack, plain_client
from tests.support.http.replies import data, objects_of, send
from tests.support.images.pictures import encoded, noise, photo
from tests.support.lists.subscribers import new_list
from tests.support.people.consoles import (
    OwnerAtConsole,
    at_console,
    forms_of,
    heading,
    shown,
    wrong_beside,
)

IMAGES = "/console/images"


def add(
    console: OwnerAtConsole, content: bytes | None = None, name: str = "harbour.png", **typed: str
) -> httpx2.Response:
    """Send the form of a new image as a browser does."""
    opened = console.visitor.get(IMAGES)
    [(action, values)] = forms_of(opened)
    values.pop("file")
    file = (name, encoded("PNG") if content is None else content)
    return console.visitor.client.post(action, data={**values, **typed}, files={"file": file})


def added(console: OwnerAtConsole, content: bytes | None = None, **typed: str) -> str:
    """The path of a new image."""
    reply = add(console, content, **typed)
    assert reply.status_code == 303, reply.text
    return str(httpx2.URL(reply.headers["location"]).path)


def pictures(text: str) -> list[str]:
    return [html.unescape(each) for each in re.findall(r'<img src="([^"]+)"', text)]


def to_copy(text: str) -> dict[str, str]:
    """What the page has for copying, by its labels of the whole image."""
    found = re.findall(
        r'<label for="[\w-]+">([^<]+)</label><input id="[^"]+" value="([^"]*)"', text
    )
    kept: dict[str, str] = {}
    for label, value in found:
        kept.setdefault(label, html.unescape(value))
    return kept


def test_console_uploads_an_image_and_shows_a_thumbnail(console: OwnerAtConsole) -> None:
    assert "No images yet" in console.see(IMAGES)
    path = added(console, photo(900, 600), name="harbour.jpg")
    text = console.see(path)
    assert heading(text) == "harbour.jpg"
    assert "“harbour.jpg” was uploaded." in text
    [small] = pictures(console.see(IMAGES))
    assert small.endswith("-thumbnail.webp")
    reply = httpx2.get(small, timeout=30.0)
    assert reply.headers["content-type"] == "image/webp"
    assert len(data(console.api.get("/attachments"))["items"]) == 1


def test_console_shows_the_thumbnail_of_an_image_uploaded_through_the_api(
    console: OwnerAtConsole,
) -> None:
    record = data(send(console.api, noise((1_500, 1_000), quality=90)))
    text = console.see(IMAGES)
    assert pictures(text) == [record["thumbnail"]["view_url"]]
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
    before = data(console.api.get(path))
    assert before["thumbnail"] is None
    assert pictures(console.see(IMAGES)) == []
    after = eventually(lambda: _with_thumbnail(console, path), what="the thumbnail")
    thumbnail = after["thumbnail"]
    assert after == before | {"thumbnail": thumbnail}
    same = ("filename", "width", "height", "view_url")
    assert [thumbnail[name] for name in same] == [record["thumbnail"][name] for name in same]
    [small] = pictures(console.see(IMAGES))
    assert console.visitor.client.get(small).headers["content-type"] == "image/webp"
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
        ready = "UPDATE attachments SET status = 2, size = 1, checksum = repeat('0', 64), "
        ready += "width = 9, height = 9 WHERE id = %s"
        stack.query(ready, record["id"])
        for _ in range(3):
            console.see(IMAGES)
    statement = "SELECT count(*) FROM jobs WHERE kind = 'attachment.thumbnail' AND subject_id = %s"
    assert stack.query(statement, record["id"]) == [(1,)]


def _with_thumbnail(console: OwnerAtConsole, path: str) -> dict[str, Any] | None:
    record: dict[str, Any] = data(console.api.get(path))
    return record if record["thumbnail"] else None


def test_console_offers_link_and_html_and_markdown_of_an_image_to_copy(
    console: OwnerAtConsole,
) -> None:
    path = added(console)
    console.do(path, alt_text='A "boat" [at] sea & <more>', title="", tags="")
    copied = to_copy(console.see(path))
    link = copied["Link"]
    assert httpx2.get(link, timeout=30.0).status_code == 200
    alt = "A &quot;boat&quot; [at] sea &amp; &lt;more&gt;"
    assert copied["HTML"] == f'<img src="{link}" alt="{alt}" width="64" height="48">'
    assert copied["Markdown"] == f'![A "boat" \\[at\\] sea & <more>]({link})'


def test_encrypted_image_is_visible_only_to_its_owner_and_with_a_signed_link(
    console: OwnerAtConsole,
) -> None:
    path = added(console, photo(400, 300), name="secret.jpg", encrypted="on")
    [small] = pictures(console.see(IMAGES))
    assert console.visitor.client.get(small).status_code == 200
    with plain_client() as anybody:
        assert anybody.get(small).status_code == 404
        text = console.see(path)
        assert "Markdown" not in text
        assert "Share this image" in text
        made = shown(console.send(f"{path}/link", lasts="3600"))
        link = to_copy(made)["Anyone with this link can see the image"]
        assert anybody.get(link).status_code == 200
    assert "in 1 hour" in made
    refused = console.send(f"{path}/link", lasts="31536000")
    assert "Choose one of the listed times" in wrong_beside(shown(refused, 422), "lasts")
    forged = console.visitor.client.post(f"{path}/link", data={"lasts": "3600"})
    assert forged.status_code == 403
    assert "signature=" not in forged.text
    console.see(f"{added(console)}/link", 409)


def test_console_changes_image_texts_and_keeps_the_input_of_a_rejected_change(
    console: OwnerAtConsole,
) -> None:
    path = added(console)
    text = console.do(path, alt_text="Boats", title="The harbour", tags="sea\r\nSea\r\n boats ")
    assert heading(text) == "The harbour"
    [record] = data(console.api.get("/attachments"))["items"]
    assert (record["alt_text"], record["title"]) == ("Boats", "The harbour")
    assert record["tags"] == ["sea", "boats"]
    reply = console.send(path, title="x" * 256, alt_text="Other boats")
    assert wrong_beside(shown(reply, 422), "title")
    assert "Other boats" in reply.text
    [after] = data(console.api.get("/attachments"))["items"]
    assert after == record


def test_console_shows_image_upload_errors_next_to_the_file_field(console: OwnerAtConsole) -> None:
    for name, content, status in (
        ("", b"", 400),
        ("words.png", b"no picture", 415),
        ("cut.png", encoded("PNG")[:60], 422),
    ):
        reply = add(console, content, name=name, encrypted="on")
        text = shown(reply, status)
        assert wrong_beside(text, "file")
        assert forms_of(reply)[0][1]["encrypted"] == "on"
        assert "No images yet" in text


def test_console_rejects_a_too_large_image_with_an_error_page(console: OwnerAtConsole) -> None:
    shown(add(console, encoded("PNG") + b"\0" * 6_000_000), 413)
    assert data(console.api.get("/attachments"))["items"] == []


def test_console_deletes_an_image_after_confirmation(console: OwnerAtConsole) -> None:
    path = added(console)
    assert heading(console.see(f"{path}/delete")) == "Delete harbour.png?"
    assert len(data(console.api.get("/attachments"))["items"]) == 1
    assert "“harbour.png” was deleted." in console.do(f"{path}/delete")
    assert data(console.api.get("/attachments"))["items"] == []
    console.see(path, 404)
    console.see("/console/images/never-was", 404)


def test_console_warns_before_the_logo_of_a_list_is_deleted(console: OwnerAtConsole) -> None:
    path = added(console)
    made = new_list(console.api, title="Tea & more", logo_hash_id=path.rpartition("/")[2])
    page = console.see(f"{path}/delete")
    assert f'/console/lists/{made["id"]}/public"><bdi>Tea &amp; more</bdi></a>' in page
    data(console.api.patch(f"/lists/{made['id']}", json={"logo_hash_id": None}))
    assert "logo" not in console.see(f"{path}/delete")


def test_console_allows_images_but_no_scripts_from_other_origins(
    console: OwnerAtConsole,
) -> None:
    policy = console.visitor.get(IMAGES).headers["content-security-policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["img-src"].startswith("'self' data: http")
    assert rules["script-src"] == rules["connect-src"] == "'self'"
