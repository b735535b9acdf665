"""API requests that add many members: their jobs run in several turns and on several workers."""

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
from services.subscriptions.imports import accepting, applying, import_job
from services.subscriptions.imports.chunks import Chunk, PreparedChunk, prepare_chunk
from services.subscriptions.imports.request_rows import RequestRows
from storage.resources import Resources
from tests.support.imports.importing import Importing, counts_of, new_addresses
from tests.support.people.quotas import leave_room_for_members

pytestmark = pytest.mark.usefixtures("_shorten_turns")

MEMBERS = 41
# Of so many members in chunks of two, and turns of five chunks.
CHUNKS, TURNS = 21, 5


@pytest.fixture
def request_job_id(importing: Importing, importer: Owner, list_id: int) -> int:
    """The id of a job that adds 41 members. The last member is a duplicate of the first one."""
    people = [{"email": each} for each in new_addresses(MEMBERS - 1)]
    body = json.dumps({"members": [*people, people[0]]}).encode()
    caller = importing.caller(importer)
    return accepting.accept_members(importing.resources, caller, list_id, body, key=None).job_id


def take_turn(importing: Importing, job_id: int) -> Lease:
    """Take one turn in a process that then hands the job back."""
    lease = importing.lease(job_id)
    turns = import_job.run_import(importing.resources, lease)
    if next(turns, "ended") != "ended":
        turns.close()
        with importing.resources.unit_of_work() as uow:
            hand_back_job(uow, lease)
    return lease


def chunks_of(importing: Importing, task: MemberImport) -> Iterator[Chunk]:
    with closing(RequestRows(importing.resources, task)) as rows:
        while (chunk := rows.next_chunk()) is not None:
            yield chunk


def require_whole(importing: Importing, list_id: int, task: MemberImport) -> None:
    counts = counts_of(task)
    assert (counts["received"], counts["added"], counts["duplicate"]) == (MEMBERS, MEMBERS - 1, 1)
    assert importing.count(list_id) == len(importing.records(list_id)) == MEMBERS - 1
    assert [code for *_, code, _ in importing.not_added(task.id)] == ["row.duplicate"]
    assert (task.status, task.chunks, task.applied) == ("succeeded", CHUNKS, CHUNKS)


def test_large_member_request_is_processed_in_turns_with_accurate_progress(
    importing: Importing, list_id: int, request_job_id: int
) -> None:
    for turn in range(1, TURNS):
        take_turn(importing, request_job_id)
        task, job = importing.of_job(request_job_id), importing.job(request_job_id)
        rows = 10 * turn
        assert (task.chunks, task.applied, task.received) == (5 * turn, 5 * turn, rows)
        assert (job.status, job.progress_done, job.progress_total) == ("queued", rows, MEMBERS)
        assert importing.count(list_id) == rows
    take_turn(importing, request_job_id)
    require_whole(importing, list_id, importing.of_job(request_job_id))


def test_large_member_request_resumes_where_a_killed_worker_stopped(
    importing: Importing, list_id: int, request_job_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        """As a process is that does nothing more."""

    commit, left = applying.commit_chunk, 3

    def commit_some(*given: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Killed
        commit(*given)

    lease = importing.lease(request_job_id)
    with monkeypatch.context() as patched:
        patched.setattr(applying, "commit_chunk", commit_some)
        with pytest.raises(Killed):
            next(import_job.run_import(importing.resources, lease))
    assert importing.of_job(request_job_id).applied == 3
    with importing.resources.unit_of_work() as uow:
        hand_back_job(uow, lease)
    importing.work(request_job_id)
    require_whole(importing, list_id, importing.of_job(request_job_id))


def test_worker_that_lost_its_lease_adds_no_members(
    importing: Importing, list_id: int, request_job_id: int
) -> None:
    stale = take_turn(importing, request_job_id)
    before = importing.records(list_id)
    with pytest.raises(LeaseLost):
        next(import_job.run_import(importing.resources, stale))
    # One that lost it while it prepared the chunk that comes next.
    task = importing.of_job(request_job_id)
    sixth = [*chunks_of(importing, task)][5]
    chunk = prepare_chunk(sixth.number, sixth.rows)
    with pytest.raises(LeaseLost):
        applying.commit_chunk(importing.resources, task.id, chunk, lambda _: stale)
    assert importing.records(list_id) == before
    importing.work(request_job_id)
    require_whole(importing, list_id, importing.of_job(request_job_id))


def test_first_members_of_a_request_are_added_up_to_the_plan_quota(
    importing: Importing,
    importer: Owner,
    list_id: int,
    request_job_id: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also when a chunk is the first to look for room, and the one before it is late."""
    commit = applying.commit_chunk

    def commit_evens_late(
        resources: Resources, import_id: int, chunk: PreparedChunk, *hold: Any
    ) -> None:
        if chunk.number % 2 == 0:
            time.sleep(0.1)
        commit(resources, import_id, chunk, *hold)

    monkeypatch.setattr(applying, "commit_chunk", commit_evens_late)
    # It ends in a chunk that is applied beside a later one.
    leave_room_for_members(importing.stack, importing.new_list(importer), 13)
    importing.work(request_job_id)
    task = importing.of_job(request_job_id)
    assert (task.received, task.added, task.over_quota) == (MEMBERS, 13, MEMBERS - 14)
    added = {int(address.split(".")[0]) for address in importing.active(list_id)}
    assert added == set(range(13))


def test_cancelled_member_request_stops_before_its_next_chunk(
    importing: Importing, list_id: int, request_job_id: int
) -> None:
    take_turn(importing, request_job_id)
    lease = importing.lease(request_job_id)
    lease.cancelled.set()
    with pytest.raises(JobCancelled):
        next(import_job.run_import(importing.resources, lease))
    assert importing.count(list_id) == importing.of_job(request_job_id).added == 10
