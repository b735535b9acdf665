from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.ids import random_hash_id
from devstack.harness.polling import eventually
from devstack.harness.stack import Owner
from services.subscriptions.imports import file_rows
from services.subscriptions.imports.chunks import applying, chunks, seen_addresses
from services.subscriptions.imports.chunks.chunks import PreparedChunk
from services.subscriptions.imports.chunks.seen_addresses import SeenAddresses
from storage.resources import Resources
from tests.support.imports.importing import ImportRunner, new_addresses
from tests.support.people.quotas import leave_room_for_members
from tests.support.sizes import sized


def build_csv(count: int, *opted_out_addresses: str) -> bytes:
    rows = [f"{random_hash_id()}@example.com,subscribed" for _ in range(count)]
    return "\n".join(
        ["email,status", *rows, *(f"{each},unsubscribed" for each in opted_out_addresses)]
    ).encode()


@pytest.mark.usefixtures("_require_no_deadlock_in_imports")
@settings(max_examples=sized(6, 300), database=None)
@given(
    room=st.integers(-1, 12),
    sizes=st.lists(st.integers(1, 6), min_size=2, max_size=3),
    chunk=st.integers(1, 4),
)
def test_concurrent_imports_fill_the_plan_quota_exactly(
    importing: ImportRunner, room: int, sizes: list[int], chunk: int
) -> None:
    owner = importing.stack.create_owner()
    leave_room_for_members(importing.stack, importing.new_list(owner), room)
    list_ids = [importing.new_list(owner) for _ in sizes]
    opted_out_addresses = [f"{random_hash_id()}@example.com" for _ in sizes]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "ROWS_PER_CHUNK", chunk)
        job_ids = [
            importing.begin(owner, list_id, build_csv(size, opted_out_address))
            for list_id, size, opted_out_address in zip(
                list_ids, sizes, opted_out_addresses, strict=True
            )
        ]
        with ThreadPoolExecutor(len(job_ids)) as threads:
            finished_jobs = list(threads.map(importing.work, job_ids))
    tasks = [importing.of_job(job.id) for job in finished_jobs]
    added = sum(task.added for task in tasks)
    assert added == sum(len(importing.active(list_id)) for list_id in list_ids)
    assert added == min(max(room, 0), sum(sizes))
    for job, task, size, list_id in zip(finished_jobs, tasks, sizes, list_ids, strict=True):
        assert (task.added + task.over_quota, task.opted_out) == (size, 1)
        assert len(importing.opt_outs(list_id)) == 1
        if task.over_quota:
            assert job.error is not None
            assert (job.status, job.error["code"]) == ("failed", "quota.exceeded")
        else:
            assert job.status == "succeeded"


def test_import_adds_nobody_after_a_row_exceeded_the_quota(
    importing: ImportRunner, importer: Owner, list_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "ROWS_PER_CHUNK", 2)
    full_id = importing.new_list(importer)
    leave_room_for_members(importing.stack, full_id, 1)
    member = f"{random_hash_id()}@example.com"
    importing.import_members(importer, list_id, f"email\n{member}\n".encode())
    commit_chunk = applying.commit_chunk

    def commit_and_make_room(
        resources: Resources, import_id: int, chunk: PreparedChunk, *hold: Any
    ) -> None:
        if chunk.number == 1:
            eventually(lambda: importing.of_job(job_id).applied == 1, what="the first chunk")
            importing.remove(list_id, member)
        commit_chunk(resources, import_id, chunk, *hold)

    monkeypatch.setattr(applying, "commit_chunk", commit_and_make_room)
    job_id = importing.begin(importer, list_id, build_csv(4))
    job = importing.work(job_id)
    task = importing.of_job(job_id)
    assert (job.status, task.added, task.over_quota) == ("failed", 0, 4)


def test_opt_outs_in_a_file_are_kept_when_its_members_exceed_the_quota(
    importing: ImportRunner, importer: Owner, list_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "ROWS_PER_CHUNK", 2)
    leave_room_for_members(importing.stack, importing.new_list(importer), 1)
    opted_out_addresses = new_addresses(2)
    job = importing.work(importing.begin(importer, list_id, build_csv(4, *opted_out_addresses)))
    task = importing.of_job(job.id)
    assert (job.status, task.added, task.over_quota, task.opted_out) == ("failed", 1, 3, 2)
    assert len(importing.opt_outs(list_id)) == 2


def test_operator_import_is_not_limited_by_the_plan_quota(
    importing: ImportRunner, importer: Owner, list_id: int
) -> None:
    leave_room_for_members(importing.stack, importing.new_list(importer), 0)
    job = importing.work(importing.begin(importer, list_id, build_csv(3), by_operator=True))
    assert (job.status, importing.of_job(job.id).added) == ("succeeded", 3)


def test_import_dry_run_at_the_plan_quota_still_judges_every_row(
    importing: ImportRunner, importer: Owner, list_id: int
) -> None:
    leave_room_for_members(importing.stack, importing.new_list(importer), 0)
    task = importing.import_members(importer, list_id, build_csv(3), dry_run=True)
    assert (task.status, task.added, task.over_quota) == ("succeeded", 3, 0)


def test_import_with_too_many_distinct_addresses_fails_without_adding_anybody(
    importing: ImportRunner, importer: Owner, list_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seen_addresses, "MAX_ADDRESSES_IN_MEMORY", 0)
    monkeypatch.setattr(file_rows, "SeenAddresses", lambda: SeenAddresses(max_bytes=64 * 1024))
    job = importing.work(importing.begin(importer, list_id, build_csv(5000)))
    assert job.error is not None
    assert (job.status, job.error["code"]) == ("failed", "import.too_many_addresses")
    assert importing.active(list_id) == set()
