"""Tests of the pages of Flower, which show operators the tasks in each queue."""

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
from tests.support.browser.accessibility import OpenPage
from tests.support.http.replies import data, problem, send
from tests.support.http.webhook_receiver import announce_events, new_endpoint, running_receiver
from tests.support.images.pictures import encoded, photo
from tests.support.stack.maintenance import run_maintenance
from workers.flower_server import load_flower_script
from workers.task_queues import list_task_queues

MAX_OFFSET_PIXELS = 1.0
# Run these tests only in the browser tier, because only a new release of Flower or of its table
# script can break them.
browser_tier = pytest.mark.tier("browser")


def read_login(stack: Stack) -> tuple[str, str]:
    variables = ("PRESSROOM_FLOWER_USER", "PRESSROOM_FLOWER_PASSWORD")
    user, password = (stack.environment[name] for name in variables)
    return user, password


@contextmanager
def run_flower(stack: Stack, *options: str) -> Iterator[str]:
    """Run Flower, and yield its URL as soon as Flower has found the workers."""
    port = free_port()
    process = stack.start(
        "flower",
        "flower",
        "--port",
        str(port),
        *options,
        ready=lambda: is_responding(port, "/healthcheck"),
    )
    url = f"http://{LOOPBACK}:{port}"
    try:
        with plain_client(auth=read_login(stack)) as client:
            eventually(
                lambda: len(client.get(f"{url}/workers?json=1").json()["data"]) > 1, what="workers"
            )
        yield url
    finally:
        process.stop()
        stack.processes.remove(process)


def read_tasks(stack: Stack, url: str) -> dict[str, Any]:
    with plain_client(auth=read_login(stack)) as client:
        tasks: dict[str, Any] = client.get(f"{url}/api/tasks").json()
    return tasks


def read_task_names(stack: Stack, url: str) -> set[str]:
    return {str(each["name"]) for each in read_tasks(stack, url).values()}


@pytest.fixture(scope="module")
def flower_url(stack: Stack) -> Iterator[str]:
    """The URL of a running Flower, the web interface that shows Celery's tasks."""
    with run_flower(stack) as url:
        yield url


@browser_tier
def test_flower_names_tasks_by_queue_and_kind_and_omits_periodic_tasks(
    stack: Stack, client: httpx2.Client, flower_url: str
) -> None:
    with run_flower(stack, "--periodic") as all_url:
        run_maintenance(stack, "objects.remove")
        eventually(
            lambda: "maintenance/objects.remove" in read_task_names(stack, all_url),
            what="maintenance",
        )
        data(send(client))
        eventually(
            lambda: "media/attachment.process" in read_task_names(stack, flower_url),
            what="the upload",
        )
        shown_names = read_task_names(stack, flower_url)
    periodic_names = {
        name for name, task_queue in list_task_queues().items() if task_queue.is_periodic
    }
    assert not {each.rpartition("/")[2] for each in shown_names} & periodic_names
    # Every task has a name, so that Flower shows one row per task and not one per event.
    assert not {"", "None"} & shown_names


_MEASURE_EDGES = """selectors => selectors.map(selector =>
    [...document.querySelectorAll(selector)].filter(cell => cell.offsetParent).map(cell => {
        const box = cell.getBoundingClientRect();
        return [box.left, box.right];
    }))"""


@browser_tier
def test_flower_table_headers_align_with_their_columns(
    stack: Stack, client: httpx2.Client, flower_url: str, open_page: OpenPage
) -> None:
    for _ in range(3):
        data(send(client))
    eventually(lambda: len(read_tasks(stack, flower_url)) >= 3, what="three tasks")
    for path, table in (("tasks", "tasks-table"), ("workers", "workers-table")):
        page = open_page(f"{flower_url}/{path}", read_login(stack))
        for width in (1000, 1280, 1600):
            page.set_viewport_size({"width": width, "height": 900})
            page.reload()
            expect(page.locator(f"#{table} tbody tr").nth(1)).to_be_visible()
            eventually(partial(_is_aligned, page, table), what="headers above their columns")
            headers = page.locator(f".{table}-card thead:visible th")
            # The first three columns are visible without scrolling: name, state and job id.
            third_header_box = _box(headers.nth(2))
            assert third_header_box["x"] + third_header_box["width"] < width


def _is_aligned(page: Page, table: str) -> bool:
    return _measure_offset(page, table) <= MAX_OFFSET_PIXELS


def _measure_offset(page: Page, table: str) -> float:
    """Return the largest offset in pixels between the edges of a table header and of its column.

    A single script measures all headers and columns, because the page may redraw the table between
    two measurements.
    """
    selectors = f".{table}-card thead th", f"#{table} tbody tr:first-child td"
    header_edges, cell_edges = page.evaluate(_MEASURE_EDGES, selectors)
    assert len(header_edges) == len(cell_edges) > 5
    offset: float = max(
        abs(header_edge - cell_edge)
        for header, cell in zip(header_edges, cell_edges, strict=True)
        for header_edge, cell_edge in zip(header, cell, strict=True)
    )
    return offset


def _box(cell: Locator) -> FloatRect:
    box = cell.bounding_box()
    assert box is not None
    return box


@browser_tier
def test_flower_shows_only_name_and_job_id_of_an_upload(
    stack: Stack, client: httpx2.Client, flower_url: str, open_page: OpenPage
) -> None:
    record = data(send(client, photo(), "private-holiday.jpg", encrypted="true"))
    [job] = data(client.get("/jobs"))["items"]
    eventually(lambda: _is_done(stack, flower_url, job["id"]), what="the upload")
    page = open_page(f"{flower_url}/tasks", read_login(stack))
    row = page.locator("#tasks-table tbody tr", has_text=f"job-{job['id']}-")
    expect(row).to_contain_text("attachment.process")
    expect(row).to_contain_text("SUCCESS")
    text = re.sub(r"\s+", " ", row.inner_text())
    assert f"'job_id': {job['id']}" in text
    for private_text in ("private-holiday", str(record["hash_id"]), str(record["user_id"])):
        assert private_text not in page.content()
    page.get_by_role("link", name="media/attachment.process").first.click()
    expect(page.locator("#tasks-table tbody tr").first).to_contain_text("media/attachment.process")
    assert page.locator("#task-search-error").is_hidden()
    assert httpx2.get(f"{flower_url}/tasks").status_code == 401


def _is_done(stack: Stack, url: str, job_id: int) -> bool:
    return any(
        each["state"] == "SUCCESS" and f"job-{job_id}-" in name
        for name, each in read_tasks(stack, url).items()
    )


@browser_tier
def test_flower_shows_failed_task_as_failure_and_retried_task_as_retry(
    stack: Stack, owner: Owner, client: httpx2.Client, flower_url: str
) -> None:
    problem(send(client, encoded("PNG")[:-30]), 422, "image.truncated")
    with running_receiver() as receiver:
        receiver.answer = lambda _: (404, {})
        new_endpoint(client, receiver.url)
        announce_events(stack, owner)
        eventually(lambda: receiver.hooks, what="a try")

    def states(name: str) -> dict[str, str]:
        tasks = read_tasks(stack, flower_url).values()
        return {each["state"]: str(each["exception"]) for each in tasks if each["name"] == name}

    eventually(lambda: "FAILURE" in states("media/attachment.process"), what="a failure")
    eventually(lambda: "RETRY" in states("webhooks/webhook.send"), what="a retry")
    assert "image.truncated" in states("media/attachment.process")["FAILURE"]


def test_flower_script_still_has_the_table_code_that_pressroom_patches() -> None:
    """If this test fails after an upgrade of Flower, check the tables on Flower's pages."""
    assert "DataTable({" in load_flower_script()
    assert "scrollX" not in load_flower_script()
