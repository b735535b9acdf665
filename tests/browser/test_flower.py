"""Flower as operators read it: what work is, in which queue, in columns that stand in line."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import httpx2
import pytest
from playwright.sync_api import FloatRect, Locator, Page, expect

from devstack import LOOPBACK
from devstack.harness.free_ports import free_port
from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack, plain_client
from devstack.supervisor.programs import is_responding
from tests.support.browser.looks import Open
from tests.support.http.replies import data, problem, send
from tests.support.http.webhook_receiver import happen, hooked, new_endpoint
from tests.support.images.pictures import encoded, photo
from tests.support.stack.maintenance import run_maintenance
from workers.flower_server import load_flower_script
from workers.task_queues import list_task_queues

MAX_PIXELS_APART = 1.0
# Flower is not ours: a release of it, or of the script that straightens its tables, changes these.
full = pytest.mark.tier("browser")


def login(stack: Stack) -> tuple[str, str]:
    names = ("PRESSROOM_FLOWER_USER", "PRESSROOM_FLOWER_PASSWORD")
    user, password = (stack.environment[name] for name in names)
    return user, password


@contextmanager
def flower(stack: Stack, *words: str) -> Iterator[str]:
    """Its URL, once it hears of the workers."""
    port = free_port()
    running = stack.start(
        "flower",
        "flower",
        "--port",
        str(port),
        *words,
        ready=lambda: is_responding(port, "/healthcheck"),
    )
    url = f"http://{LOOPBACK}:{port}"
    try:
        with plain_client(auth=login(stack)) as asking:
            eventually(
                lambda: len(asking.get(f"{url}/workers?json=1").json()["data"]) > 1, what="workers"
            )
        yield url
    finally:
        running.stop()
        stack.processes.remove(running)


def tasks(stack: Stack, url: str) -> dict[str, Any]:
    with plain_client(auth=login(stack)) as asking:
        found: dict[str, Any] = asking.get(f"{url}/api/tasks").json()
    return found


def names(stack: Stack, url: str) -> set[str]:
    return {str(each["name"]) for each in tasks(stack, url).values()}


@pytest.fixture(scope="module")
def flower_url(stack: Stack) -> Iterator[str]:
    """The URL of a running Flower, the web interface that shows Celery's tasks."""
    with flower(stack) as running:
        yield running


@full
def test_flower_names_tasks_by_queue_and_kind_and_omits_periodic_tasks(
    stack: Stack, client: httpx2.Client, flower_url: str
) -> None:
    with flower(stack, "--periodic") as all_url:
        run_maintenance(stack, "objects.remove")
        eventually(
            lambda: "maintenance/objects.remove" in names(stack, all_url), what="maintenance"
        )
        data(send(client))
        eventually(
            lambda: "media/attachment.process" in names(stack, flower_url), what="the upload"
        )
        shown = names(stack, flower_url)
    periodic = {name for name, found in list_task_queues().items() if found.is_periodic}
    assert not {each.rpartition("/")[2] for each in shown} & periodic
    # Without a name there would be a row for each event of theirs.
    assert not {"", "None"} & shown


_EDGES = """selectors => selectors.map(selector =>
    [...document.querySelectorAll(selector)].filter(cell => cell.offsetParent).map(cell => {
        const box = cell.getBoundingClientRect();
        return [box.left, box.right];
    }))"""


@full
def test_flower_table_headers_align_with_their_columns(
    stack: Stack, client: httpx2.Client, flower_url: str, open_page: Open
) -> None:
    for _ in range(3):
        data(send(client))
    eventually(lambda: len(tasks(stack, flower_url)) >= 3, what="three tasks")
    for path, table in (("tasks", "tasks-table"), ("workers", "workers-table")):
        page = open_page(f"{flower_url}/{path}", login(stack))
        for width in (1000, 1280, 1600):
            page.set_viewport_size({"width": width, "height": 900})
            page.reload()
            expect(page.locator(f"#{table} tbody tr").nth(1)).to_be_visible()
            eventually(partial(_is_in_line, page, table), what="headers above their columns")
            head = page.locator(f".{table}-card thead:visible th")
            # What matters most needs no scrolling: the name, the state and the job's id.
            third = _box(head.nth(2))
            assert third["x"] + third["width"] < width


def _is_in_line(page: Page, table: str) -> bool:
    return _apart(page, table) <= MAX_PIXELS_APART


def _apart(page: Page, table: str) -> float:
    """By how many pixels the edges of headers and of the cells below them differ at most.

    All are measured at one moment: the page may draw them anew at any other.
    """
    cells = f".{table}-card thead th", f"#{table} tbody tr:first-child td"
    heads, below = page.evaluate(_EDGES, cells)
    assert len(heads) == len(below) > 5
    apart: float = max(
        abs(above - under)
        for header, cell in zip(heads, below, strict=True)
        for above, under in zip(header, cell, strict=True)
    )
    return apart


def _box(cell: Locator) -> FloatRect:
    box = cell.bounding_box()
    assert box is not None
    return box


@full
def test_flower_shows_only_name_and_job_id_of_an_upload(
    stack: Stack, client: httpx2.Client, flower_url: str, open_page: Open
) -> None:
    record = data(send(client, photo(), "private-holiday.jpg", encrypted="true"))
    [job] = data(client.get("/jobs"))["items"]
    eventually(lambda: _is_done(stack, flower_url, job["id"]), what="the upload")
    page = open_page(f"{flower_url}/tasks", login(stack))
    row = page.locator("#tasks-table tbody tr", has_text=f"job-{job['id']}-")
    expect(row).to_contain_text("attachment.process")
    expect(row).to_contain_text("SUCCESS")
    text = re.sub(r"\s+", " ", row.inner_text())
    assert f"'job_id': {job['id']}" in text
    for private in ("private-holiday", str(record["hash_id"]), str(record["user_id"])):
        assert private not in page.content()
    page.get_by_role("link", name="media/attachment.process").first.click()
    expect(page.locator("#tasks-table tbody tr").first).to_contain_text("media/attachment.process")
    assert page.locator("#task-search-error").is_hidden()
    assert httpx2.get(f"{flower_url}/tasks").status_code == 401


def _is_done(stack: Stack, url: str, job_id: int) -> bool:
    return any(
        each["state"] == "SUCCESS" and f"job-{job_id}-" in name
        for name, each in tasks(stack, url).items()
    )


@full
def test_flower_shows_failed_task_as_failure_and_retried_task_as_retry(
    stack: Stack, owner: Owner, client: httpx2.Client, flower_url: str
) -> None:
    problem(send(client, encoded("PNG")[:-30]), 422, "image.truncated")
    with hooked() as receiver:
        receiver.answer = lambda _: (404, {})
        new_endpoint(client, receiver.url)
        happen(stack, owner)
        eventually(lambda: receiver.hooks, what="a try")

    def states(name: str) -> dict[str, str]:
        found = tasks(stack, flower_url).values()
        return {each["state"]: str(each["exception"]) for each in found if each["name"] == name}

    eventually(lambda: "FAILURE" in states("media/attachment.process"), what="a failure")
    eventually(lambda: "RETRY" in states("webhooks/webhook.send"), what="a retry")
    assert "image.truncated" in states("media/attachment.process")["FAILURE"]


def test_flower_script_still_has_the_table_code_that_pressroom_patches() -> None:
    """A later Flower may have another table: look at its pages then."""
    assert "DataTable({" in load_flower_script()
    assert "scrollX" not in load_flower_script()
