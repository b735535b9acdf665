"""Tests that the workers of a container read large workbooks one after the other."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil
import pytest

from devstack.harness.polling import eventually
from devstack.harness.running import Running
from devstack.harness.stack import Owner
from services.subscriptions.imports.formats.workbooks.reading_slots import MemoryLimit, ReadingSlot
from tests.support.http.replies import data
from tests.support.imports.importing import ImportRunner
from tests.support.imports.killed_imports import await_success
from tests.support.imports.workbooks import MAIN, cell, package, sheet_xml, workbook

# On a crowded machine, the processes of a worker get little processor time.
pytestmark = pytest.mark.tier("faults")

MEGABYTE = 1024**2
# A child that reads a small workbook may use this address space.
SMALL_CHILD_BYTES = 128 * MEGABYTE
MAX_SECONDS = 240.0
CHILD_MODULE = "services.subscriptions.imports.formats.workbooks.child"
PEOPLE_SHEET = sheet_xml(
    '<row r="1">' + cell("A1", "email") + '</row><row r="2">' + cell("A2", "ann@example.com")
    + "</row>"
)  # fmt: skip


@contextmanager
def watching_children(worker: Running) -> Iterator[list[list[int]]]:
    """Yield a list to which the memory of all children that read workbooks is added regularly."""
    samples: list[list[int]] = []
    stop = threading.Event()

    def watch() -> None:
        process = psutil.Process(worker.pid)
        while not stop.wait(0.02):
            sizes = []
            for child in process.children(recursive=True):
                with suppress(psutil.Error):
                    if CHILD_MODULE in child.cmdline():
                        sizes.append(child.memory_info().rss)
            samples.append(sizes)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield samples
    finally:
        stop.set()
        thread.join()


def build_workbook_with_many_texts() -> bytes:
    texts = f'<sst xmlns="{MAIN}">' + f"<si><t>{'x' * 100}</t></si>" * 1_000_000 + "</sst>"
    return package(PEOPLE_SHEET, parts={"xl/sharedStrings.xml": texts})


def test_large_workbooks_are_read_one_after_the_other_and_an_export_ends_beside_them(
    imports: ImportRunner, import_owner: Owner
) -> None:
    file = build_workbook_with_many_texts()
    worker = imports.stack.start_worker("bulk", "export", concurrency=3)
    with imports.stack.run_second_api() as api, api.client(import_owner.key) as client:
        list_id = imports.new_list(import_owner)
        with watching_children(worker) as samples:
            jobs = [begin_import(imports, import_owner, file) for _ in range(3)]
            eventually(lambda: any(samples), what="the first child")
            export = client.post(
                f"/lists/{list_id}/exports",
                json={"kind": "members"},
                headers={"Prefer": "respond-async"},
            )
            path = f"/jobs/{data(export, 202)['id']}"
            eventually(
                lambda: data(client.get(path))["status"] == "succeeded",
                within=MAX_SECONDS,
                what="the export's end",
            )
            assert any(imports.job(job).finished_at is None for job in jobs)
            for job in jobs:
                assert await_success(imports, job, within=MAX_SECONDS).added == 1
    large = [[size for size in sizes if size > SMALL_CHILD_BYTES] for sizes in samples]
    assert max(map(len, large)) == 1
    largest = max(max(sizes) for sizes in large if sizes)
    assert max(map(sum, samples)) <= largest + SMALL_CHILD_BYTES


@contextmanager
def holding_slot(imports: ImportRunner, limit: MemoryLimit) -> Iterator[None]:
    """Hold a slot, as if another process of the container was reading a workbook."""
    slot = ReadingSlot(limit, imports.resources.settings.database_url.get_secret_value())
    eventually(slot.acquire, what="the slot")
    try:
        yield
    finally:
        slot.release()


def test_small_imports_do_not_wait_for_a_large_workbook(
    imports: ImportRunner, import_owner: Owner
) -> None:
    small = workbook({"Members": [["email"], ["ann@example.com"]]})
    imports.stack.start_worker("bulk", concurrency=1)
    with holding_slot(imports, MemoryLimit.FULL):
        large_job = begin_import(imports, import_owner, build_workbook_with_many_texts())
        eventually(lambda: imports.job(large_job).attempt == 1, what="the first import's start")
        for file, name in ((small, "members.xlsx"), (b"email\nann@example.com\n", "members.csv")):
            job = begin_import(imports, import_owner, file, name)
            assert await_success(imports, job, within=MAX_SECONDS).added == 1
        assert imports.job(large_job).finished_at is None
    assert await_success(imports, large_job, within=MAX_SECONDS).added == 1


def test_waiting_workbooks_are_sent_to_the_workers_only_once(
    imports: ImportRunner, import_owner: Owner
) -> None:
    file = workbook({"Members": [["email"], ["ann@example.com"], ["ben@example.com"]]})
    imports.stack.start_worker("bulk", concurrency=1)
    with holding_slot(imports, MemoryLimit.LOW):
        jobs = [begin_import(imports, import_owner, file) for _ in range(10)]
        eventually(
            lambda: all(imports.job(job).attempt for job in jobs),
            within=MAX_SECONDS,
            what="the start of all imports",
        )
    for job in jobs:
        assert await_success(imports, job, within=MAX_SECONDS).added == 2
    assert [imports.job(job).sends for job in jobs] == [1] * 10


def begin_import(
    imports: ImportRunner, owner: Owner, file: bytes, name: str = "members.xlsx"
) -> int:
    return imports.begin(owner, imports.new_list(owner), file, name=name)
