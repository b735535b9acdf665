"""Flower as operators read it: what work is, and in which queue."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest
from playwright.sync_api import expect

from devstack import LOOPBACK
from devstack.supervisor.programs import answers
from tests.browser.looks import Keep, Open
from tests.contract.replies import data, problem, send
from tests.hooks import happen, hooked, new_endpoint
from tests.maintenance import run_maintenance
from tests.pictures import encoded, photo
from tests.ports import free_port
from tests.stack import Owner, Stack, eventually, plain_client
from workers.task_queues import queues_of_tasks

# Flower is not ours: a release of it changes these.
full = pytest.mark.full("browser")


def login(stack: Stack) -> tuple[str, str]:
    names = ("PRESSROOM_FLOWER_USER", "PRESSROOM_FLOWER_PASSWORD")
    user, password = (stack.environment[name] for name in names)
    return user, password


@contextmanager
def flower(stack: Stack, *words: str) -> Iterator[str]:
    """Its URL, once it hears of the workers."""
    port = free_port()
    running = stack.start(
        "flower", "flower", "--port", str(port), *words, ready=lambda: answers(port, "/healthcheck")
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
def url(stack: Stack) -> Iterator[str]:
    with flower(stack) as running:
        yield running


@full
def test_a_task_is_named_by_its_queue_and_kind_and_periodic_work_is_left_out(
    stack: Stack, client: httpx2.Client, url: str
) -> None:
    with flower(stack, "--periodic") as all_url:
        run_maintenance(stack, "objects.remove")
        eventually(
            lambda: "maintenance/objects.remove" in names(stack, all_url), what="maintenance"
        )
        data(send(client))
        eventually(lambda: "media/attachment.process" in names(stack, url), what="the upload")
        shown = names(stack, url)
    periodic = {name for name, found in queues_of_tasks().items() if found.is_periodic}
    assert not {each.rpartition("/")[2] for each in shown} & periodic
    # Without a name there would be a row for each event of theirs.
    assert not {"", "None"} & shown


@full
def test_a_name_leads_to_its_own_tasks(
    stack: Stack, client: httpx2.Client, url: str, open_page: Open
) -> None:
    data(send(client))
    eventually(lambda: "media/attachment.process" in names(stack, url), what="the upload")
    page = open_page(f"{url}/tasks", login(stack))
    page.get_by_role("link", name="media/attachment.process").first.click()
    rows = page.locator("#tasks-table tbody tr")
    expect(rows.first).to_contain_text("media/attachment.process")
    assert page.locator("#task-search-error").is_hidden()


@full
def test_an_upload_is_shown_by_name_and_ids_alone(
    stack: Stack, client: httpx2.Client, url: str, open_page: Open, keep: Keep
) -> None:
    record = data(send(client, photo(), "private-holiday.jpg", encrypted="true"))
    [job] = data(client.get("/jobs"))["items"]
    eventually(lambda: _is_done(stack, url, job["id"]), what="the upload")
    page = open_page(f"{url}/tasks", login(stack))
    row = page.locator("#tasks-table tbody tr", has_text=f"job-{job['id']}-")
    expect(row).to_contain_text("attachment.process")
    expect(row).to_contain_text("SUCCESS")
    text = re.sub(r"\s+", " ", row.inner_text())
    assert f"'job_id': {job['id']}" in text
    for private in ("private-holiday", str(record["hash_id"]), str(record["user_id"])):
        assert private not in page.content()
    keep(page, "flower-tasks")
    assert httpx2.get(f"{url}/tasks").status_code == 401


def _is_done(stack: Stack, url: str, job_id: int) -> bool:
    return any(
        each["state"] == "SUCCESS" and f"job-{job_id}-" in name
        for name, each in tasks(stack, url).items()
    )


@full
def test_a_turn_whose_work_failed_is_no_success(
    stack: Stack, owner: Owner, client: httpx2.Client, url: str
) -> None:
    problem(send(client, encoded("PNG")[:-30]), 422, "image.truncated")
    with hooked() as receiver:
        receiver.answer = lambda _: (404, {})
        new_endpoint(client, receiver.url)
        happen(stack, owner)
        eventually(lambda: receiver.hooks, what="a try")

    def states(name: str) -> dict[str, str]:
        found = tasks(stack, url).values()
        return {each["state"]: str(each["exception"]) for each in found if each["name"] == name}

    eventually(lambda: "FAILURE" in states("media/attachment.process"), what="a failure")
    eventually(lambda: "RETRY" in states("webhooks/webhook.send"), what="a retry")
    assert "image.truncated" in states("media/attachment.process")["FAILURE"]
