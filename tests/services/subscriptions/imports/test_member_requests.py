"""Tests of API requests that add many members.

The job that adds the members can pause after some members, and continue in another worker process.
"""

import json
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from devstack.harness.stack import Owner
from models import MemberImport
from services.jobs.lease import JobCancelled, Lease, LeaseLost
from services.jobs.transitions import hand_back_job
from services.subscriptions.imports import accepting, import_job
from services.subscriptions.imports.chunks import applying, chunks
from services.subscriptions.imports.chunks.chunks import Chunk, PreparedChunk, prepare_chunk
from services.subscriptions.imports.request_rows import RequestRows
from storage.resources import Resources
from tests.support.imports.importing import ImportRunner, counts_of, new_addresses
from tests.support.lists.own_fields import create_company_and_age
from tests.support.people.quotas import leave_room_for_members

pytestmark = pytest.mark.usefixtures("_shorten_turns")

ROW_COUNT = 41
# The job adds the members in chunks of two. After five chunks, the job can continue in another
# process.
CHUNK_COUNT = 21
TURN_COUNT = 5


@pytest.fixture
def request_job_id(importing: ImportRunner, importer: Owner, list_id: int) -> int:
    """The id of a job that adds 41 members. The last member is a duplicate of the first one."""
    people = [{"email": each} for each in new_addresses(ROW_COUNT - 1)]
    body = json.dumps({"members": [*people, people[0]]}).encode()
    caller = importing.caller(importer)
    return accepting.accept_members(importing.resources, caller, list_id, body, key=None).job_id


def take_turn(importing: ImportRunner, job_id: int) -> Lease:
    """Import up to ten rows. If the job isn't complete, queue the job for another process."""
    lease = importing.lease(job_id)
    turns = import_job.run_import(importing.resources, lease)
    if next(turns, "ended") != "ended":
        turns.close()
        with importing.resources.unit_of_work() as uow:
            hand_back_job(uow, lease)
    return lease


def read_chunks(importing: ImportRunner, task: MemberImport) -> Iterator[Chunk]:
    with closing(RequestRows(importing.resources, task, chunks.ROWS_PER_CHUNK)) as rows:
        while (chunk := rows.next_chunk()) is not None:
            yield chunk


def require_complete_import(importing: ImportRunner, list_id: int, task: MemberImport) -> None:
    counts = counts_of(task)
    assert (counts["received"], counts["added"], counts["duplicate"]) == (
        ROW_COUNT,
        ROW_COUNT - 1,
        1,
    )
    assert importing.count(list_id) == len(importing.records(list_id)) == ROW_COUNT - 1
    assert [code for *_, code, _ in importing.not_added(task.id)] == ["row.duplicate"]
    assert (task.status, task.chunks, task.applied) == ("succeeded", CHUNK_COUNT, CHUNK_COUNT)


def test_large_member_request_is_processed_in_turns_with_accurate_progress(
    importing: ImportRunner, list_id: int, request_job_id: int
) -> None:
    for turn in range(1, TURN_COUNT):
        take_turn(importing, request_job_id)
        task = importing.of_job(request_job_id)
        job = importing.job(request_job_id)
        rows = 10 * turn
        assert (task.chunks, task.applied, task.received) == (5 * turn, 5 * turn, rows)
        assert (job.status, job.progress_done, job.progress_total) == ("queued", rows, ROW_COUNT)
        assert importing.count(list_id) == rows
    take_turn(importing, request_job_id)
    require_complete_import(importing, list_id, importing.of_job(request_job_id))


def test_large_member_request_resumes_where_a_killed_worker_stopped(
    importing: ImportRunner, list_id: int, request_job_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        """Simulates a killed process. Handlers for ``Exception`` don't catch this exception."""

    commit_chunk = applying.commit_chunk
    remaining_commits = 3

    def commit_some(*arguments: Any) -> None:
        nonlocal remaining_commits
        remaining_commits -= 1
        if remaining_commits < 0:
            raise Killed
        commit_chunk(*arguments)

    lease = importing.lease(request_job_id)
    with monkeypatch.context() as patch:
        patch.setattr(applying, "commit_chunk", commit_some)
        with pytest.raises(Killed):
            next(import_job.run_import(importing.resources, lease))
    assert importing.of_job(request_job_id).applied == 3
    with importing.resources.unit_of_work() as uow:
        hand_back_job(uow, lease)
    importing.work(request_job_id)
    require_complete_import(importing, list_id, importing.of_job(request_job_id))


def test_worker_that_lost_its_lease_adds_no_members(
    importing: ImportRunner, list_id: int, request_job_id: int
) -> None:
    stale_lease = take_turn(importing, request_job_id)
    records_before = importing.records(list_id)
    with pytest.raises(LeaseLost):
        next(import_job.run_import(importing.resources, stale_lease))
    # A worker that loses its lease while preparing a chunk can't commit the chunk.
    task = importing.of_job(request_job_id)
    sixth_chunk = [*read_chunks(importing, task)][5]
    chunk = prepare_chunk(sixth_chunk.number, sixth_chunk.rows)
    with pytest.raises(LeaseLost):
        applying.commit_chunk(importing.resources, task.id, chunk, lambda _: stale_lease)
    assert importing.records(list_id) == records_before
    importing.work(request_job_id)
    require_complete_import(importing, list_id, importing.of_job(request_job_id))


def test_first_members_of_a_request_are_added_up_to_the_plan_quota(
    importing: ImportRunner,
    importer: Owner,
    list_id: int,
    request_job_id: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If the quota is too small for all members, the first ones in the request are added.

    The result doesn't depend on the order in which the chunks of members are committed.
    """
    commit_chunk = applying.commit_chunk

    def commit_even_chunks_late(
        resources: Resources, import_id: int, chunk: PreparedChunk, *hold: Any
    ) -> None:
        if chunk.number % 2 == 0:
            time.sleep(0.1)
        commit_chunk(resources, import_id, chunk, *hold)

    monkeypatch.setattr(applying, "commit_chunk", commit_even_chunks_late)
    # The quota of 13 more members is used up in the middle of one chunk, while another transaction
    # already adds the next chunk.
    leave_room_for_members(importing.stack, importing.new_list(importer), 13)
    importing.work(request_job_id)
    task = importing.of_job(request_job_id)
    assert (task.received, task.added, task.over_quota) == (ROW_COUNT, 13, ROW_COUNT - 14)
    added = {int(address.split(".")[0]) for address in importing.active(list_id)}
    assert added == set(range(13))


def test_cancelled_member_request_stops_before_its_next_chunk(
    importing: ImportRunner, list_id: int, request_job_id: int
) -> None:
    take_turn(importing, request_job_id)
    lease = importing.lease(request_job_id)
    lease.cancelled.set()
    with pytest.raises(JobCancelled):
        next(import_job.run_import(importing.resources, lease))
    assert importing.count(list_id) == importing.of_job(request_job_id).added == 10


@pytest.fixture
def job_id_with_values(importing: ImportRunner, importer: Owner, list_id: int) -> int:
    """The id of a job that adds 41 members, each with a wrong type, a field and an unknown name."""
    create_company_and_age(importing.resources, importer)
    values = {"type": "platinum", "fields": {"company": "Press"}, "born": 1990}
    people = [{"email": each, **values} for each in new_addresses(ROW_COUNT - 1)]
    body = json.dumps({"members": [*people, people[0]]}).encode()
    return accepting.accept_members(
        importing.resources,
        importing.caller(importer),
        list_id,
        body,
        key=None,
        has_values=True,
    ).job_id


def test_request_names_each_row_once_although_its_fields_change_between_two_workers(
    importing: ImportRunner, importer: Owner, list_id: int, job_id_with_values: int
) -> None:
    """Chunks keep their extent even if a retry leaves out more values than the first attempt."""
    take_turn(importing, job_id_with_values)
    importing.stack.query(
        "UPDATE fields SET retired_at = now() WHERE user_id = %s", importer.user_id
    )
    importing.work(job_id_with_values)
    task = importing.of_job(job_id_with_values)
    assert (task.received, task.added, task.duplicate) == (ROW_COUNT, ROW_COUNT - 1, 1)
    result = importing.job(job_id_with_values).result
    assert result is not None
    assert result["skipped"] == [{"index": ROW_COUNT - 1, "code": "row.duplicate"}]
    assert [(each["index"], each["field"]) for each in result["ignored"]] == [
        (index, field)
        for index in range(ROW_COUNT - 1)
        # The first turn has added ten members, whose field still existed.
        for field in (("born", "type") if index < 10 else ("born", "type", "fields.company"))
    ][:100]


def test_result_omits_the_rows_that_a_worker_of_release_1_1_has_added(
    importing: ImportRunner, job_id_with_values: int
) -> None:
    take_turn(importing, job_id_with_values)
    task = importing.of_job(job_id_with_values)
    importing.stack.query("UPDATE import_chunks SET report = NULL WHERE import_id = %s", task.id)
    importing.work(job_id_with_values)
    result = importing.job(job_id_with_values).result
    assert result is not None
    assert (result["received"], result["added"]) == (ROW_COUNT, ROW_COUNT - 1)
    assert {each["index"] for each in result["ignored"]} == set(range(10, ROW_COUNT - 1))
