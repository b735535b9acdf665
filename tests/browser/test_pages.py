"""The pages that people look at, in a real browser."""

import re
from collections.abc import Callable
from pathlib import Path

import httpx
from playwright.sync_api import Locator, Page, expect

from devstack import LOOPBACK
from devstack.supervisor.programs import answers
from tests.contract.replies import data, send
from tests.pictures import photo
from tests.ports import free_port
from tests.stack import Owner, Stack, eventually

Open = Callable[..., Page]
Keep = Callable[[Page, str], Path]


def test_docs_show_every_operation_without_a_network(
    stack: Stack, open_page: Open, keep: Keep
) -> None:
    page = open_page(f"{stack.api_url}/docs")
    operations = page.locator(".opblock")
    expect(operations.first).to_be_visible()
    document = httpx.get(f"{stack.api_url}/openapi.json").json()
    shown = [*document["paths"].values(), *document["webhooks"].values()]
    expect(operations).to_have_count(sum(len(methods) for methods in shown))
    expect(page.locator("h1, h2").first).to_contain_text("Pressroom")
    upload = page.locator(".opblock-post", has_text="/attachments").first
    upload.locator(".opblock-summary").click()
    expect(upload).to_contain_text("Scope: attachment.")
    expect(upload).to_contain_text("multipart/form-data")
    # The examples, that of the answer and those to which the refusals refer.
    expect(upload).to_contain_text("k3v09xq2m7ta.webp")
    expect(upload).to_contain_text("The part 'file' with a file is missing.")
    upload.get_by_role("button", name="Try it out").click()
    expect(upload.locator("input[type=file]")).to_be_visible()
    keep(page, "docs")


def test_docs_try_an_operation_with_a_key(
    stack: Stack, owner: Owner, open_page: Open, keep: Keep
) -> None:
    page = open_page(f"{stack.api_url}/docs")
    page.get_by_role("button", name="Authorize").first.click()
    page.locator("#auth-bearer-value").fill(owner.key)
    bearer = page.locator(".auth-container", has_text="bearer")
    bearer.get_by_role("button", name="Apply credentials").click()
    page.locator(".close-modal").click()
    me = page.locator(".opblock-get", has_text="/users/me").first
    me.locator(".opblock-summary").click()
    me.get_by_role("button", name="Try it out").click()
    me.get_by_role("button", name="Execute").click()
    expect(me.locator(".live-responses-table")).to_contain_text(owner.email)
    keep(page, "docs-authorized")


def test_sandbox_introduces_itself(stack: Stack, open_page: Open, keep: Keep) -> None:
    page = open_page(f"{stack.sandbox_url}/")
    expect(page.get_by_role("heading", level=1)).to_have_text("Pressroom sandbox")
    expect(page.get_by_role("heading", name="Providers")).to_be_visible()
    assert "{{" not in page.content()
    keep(page, "sandbox")


def test_flower_shows_an_upload_by_name_and_ids_alone(
    stack: Stack, client: httpx.Client, open_page: Open, keep: Keep
) -> None:
    port = free_port()
    flower = stack.start(
        "flower", "flower", "--port", str(port), ready=lambda: answers(port, "/healthcheck")
    )
    page_url = f"http://{LOOPBACK}:{port}"
    login = (
        stack.environment["PRESSROOM_FLOWER_USER"],
        stack.environment["PRESSROOM_FLOWER_PASSWORD"],
    )
    page = open_page(f"{page_url}/workers", login)
    # It learns of workers and tasks by their events: of what came before it listened, nothing.
    media = page.locator("#workers-table tbody tr", has_text="media@")
    _reload_until_seen(page, media)
    keep(page, "flower-workers")
    record = data(send(client, photo(), "private-holiday.jpg", encrypted="true"))
    [job] = data(client.get("/jobs"))["items"]
    page.goto(f"{page_url}/tasks")
    row = page.locator("#tasks-table tbody tr", has_text=f"job-{job['id']}-")
    _reload_until_seen(page, row)
    expect(row).to_contain_text("attachment.process")
    expect(row).to_contain_text("SUCCESS")
    text = re.sub(r"\s+", " ", row.inner_text())
    assert f"'job_id': {job['id']}" in text
    for private in ("private-holiday", str(record["hash_id"]), str(record["user_id"])):
        assert private not in page.content()
    keep(page, "flower-tasks")
    assert httpx.get(f"{page_url}/tasks").status_code == 401
    flower.stop()


def _reload_until_seen(page: Page, row: Locator) -> None:
    def seen() -> bool:
        page.reload()
        page.wait_for_load_state("networkidle")
        return row.count() > 0

    eventually(seen, within=30, what="the row in Flower's table")
