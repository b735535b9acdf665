"""Tests imports of files in which a person has several rows, such as a subscription and an opt-out.

If a file contains several rows of a person, an import uses only the most restrictive row, such as
an opt-out. An import saves opt-outs before it adds members.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from psycopg2.errors import SerializationFailure
from sqlalchemy import func

from devstack.harness.stack import Owner
from models import Job, MemberImport
from services.jobs import records as job_records
from services.jobs.lost_jobs import LAST_CRASH_PATIENCE, DatabaseWatch, requeue_lost_jobs
from services.subscriptions import bulk_files
from services.subscriptions.imports import import_job, judged_rows
from services.subscriptions.imports.chunks import applying, chunks, seen_addresses, verdicts
from services.subscriptions.imports.chunks.applying import AppliedChunk
from services.subscriptions.imports.chunks.chunk_extras import TagIds
from services.subscriptions.imports.chunks.chunks import PreparedChunk
from services.subscriptions.imports.chunks.stored_chunks import StoredChunks, get_chunk_key
from services.subscriptions.imports.columns.samples import add_samples
from services.subscriptions.imports.judged_rows import JudgedRow
from storage.encryption import seal
from storage.unit_of_work import UnitOfWork
from tests.support.imports.importing import ImportRunner, counts_of, csv_of, new_addresses
from tests.support.people.changed_addresses import change_address
from tests.support.probe.job_states import update_job

HEADER = ("email", "status")


@pytest.fixture(params=[None, 2], ids=["one chunk", "many chunks"])
def _set_rows_per_chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param:
        monkeypatch.setattr(chunks, "ROWS_PER_CHUNK", request.param)
        # Store all addresses on disk instead of in memory.
        monkeypatch.setattr(seen_addresses, "MAX_ADDRESSES_IN_MEMORY", 0)


def list_opt_out_sources(importing: ImportRunner, list_id: int) -> list[str]:
    rows = importing.stack.query(
        "SELECT source FROM opt_outs WHERE list_id = %s ORDER BY id", list_id
    )
    return sorted(str(source) for (source,) in rows)


def find_status(importing: ImportRunner, list_id: int, address: str) -> str | None:
    rows = importing.stack.query(
        "SELECT status FROM subscriptions WHERE list_id = %s AND email = %s", list_id, address
    )
    return str(rows[0][0]) if rows else None


@pytest.mark.usefixtures("_set_rows_per_chunk")
@pytest.mark.parametrize("order", [1, -1], ids=["yes first", "no first"])
def test_one_opt_out_outweighs_every_subscription_of_the_same_person_in_a_file(
    importing: ImportRunner, importer: Owner, list_id: int, order: int
) -> None:
    member, bounced, complained, unconfirmed, *other_addresses = new_addresses(10)
    importing.import_members(importer, list_id, csv_of([[member]], ["email"]))
    pairs = [
        *(
            [member, "subscribed"],
            [bounced, "active"],
            [complained, "subscribed"],
            [unconfirmed, "subscribed"],
        ),
        *([each, "subscribed"] for each in other_addresses),
        *(
            [member.upper(), "unsubscribed"],
            [bounced, "bounced"],
            [complained, "complained"],
            [unconfirmed, "unconfirmed"],
        ),
        *([member, "subscribed"], [bounced, "unsubscribed"]),
    ]
    file = csv_of(pairs[::order], HEADER)
    expected = dict.fromkeys(verdicts.COUNTS, 0)
    expected |= {"received": 16, "added": 6, "opted_out": 3, "invalid": 1, "duplicate": 6}

    dry_run = importing.import_members(importer, list_id, file, dry_run=True)
    assert counts_of(dry_run) == expected
    assert importing.active(list_id) == {member}
    task = importing.import_members(importer, list_id, file)

    assert counts_of(task) == expected
    assert importing.active(list_id) == {*other_addresses}
    assert find_status(importing, list_id, member) == "unsubscribed"
    assert list_opt_out_sources(importing, list_id) == ["bounce", "complaint", "import"]


@pytest.mark.usefixtures("_set_rows_per_chunk")
def test_new_address_beside_a_repeated_address_is_added(
    importing: ImportRunner, importer: Owner, list_id: int
) -> None:
    first, second, third = new_addresses(3)
    file = csv_of([[first], [second], [first], [third]], ["email"])

    task = importing.import_members(importer, list_id, file)

    assert (task.added, task.duplicate) == (3, 1)
    assert importing.active(list_id) == {first, second, third}


@pytest.mark.usefixtures("_set_rows_per_chunk")
@pytest.mark.parametrize("opt_out_status", ["unsubscribed", "unconfirmed"])
def test_opt_out_under_one_address_of_a_person_counts_for_their_other_addresses(
    importing: ImportRunner, importer: Owner, list_id: int, opt_out_status: str
) -> None:
    old_address, new_address, *other_addresses = new_addresses(6)
    other_list = importing.new_list(importer)
    importing.import_members(importer, other_list, csv_of([[old_address]], ["email"]))
    change_address(importing.resources, old_address, new_address)
    rows = [
        [new_address, "subscribed"],
        *([each, "subscribed"] for each in other_addresses),
        [old_address, opt_out_status],
    ]

    for file in (rows, rows[::-1]):
        task = importing.import_members(importer, list_id, csv_of(file, HEADER), dry_run=True)
        assert (task.added, task.duplicate, task.opted_out + task.invalid) == (4, 1, 1)
    importing.import_members(importer, list_id, csv_of(rows, HEADER))
    assert importing.active(list_id) == {*other_addresses}
    # A later file contains only the other address of the person.
    later_task = importing.import_members(importer, list_id, csv_of([[new_address]], ["email"]))
    assert (later_task.added, later_task.opted_out) == (
        (0, 1) if opt_out_status == "unsubscribed" else (1, 0)
    )


def test_opt_out_under_a_changed_address_blocks_import_of_the_former_address(
    importing: ImportRunner, importer: Owner, list_id: int
) -> None:
    old_address, new_address = new_addresses(2)
    importing.import_members(importer, list_id, csv_of([[old_address]], ["email"]))
    change_address(importing.resources, old_address, new_address)
    importing.import_members(importer, list_id, csv_of([[new_address, "unsubscribed"]], HEADER))
    task = importing.import_members(importer, list_id, csv_of([[old_address]], ["email"]))
    assert (task.added, task.opted_out) == (0, 1)
    assert importing.active(list_id) == set()


def test_opt_out_with_an_unreadable_expiry_is_kept(
    importing: ImportRunner, importer: Owner, list_id: int
) -> None:
    [address] = new_addresses(1)
    rows = [[address, "unsubscribed", "gold", "soon"]]
    task = importing.import_members(
        importer, list_id, csv_of(rows, (*HEADER, "tier", "paid until"))
    )
    assert (task.opted_out, task.invalid) == (1, 0)


def test_opt_out_row_with_an_invalid_address_affects_no_member(
    importing: ImportRunner, importer: Owner, list_id: int
) -> None:
    [ada] = new_addresses(1)
    rows = [[ada, "subscribed"], [f"{ada} {ada}", "unsubscribed"]]
    task = importing.import_members(importer, list_id, csv_of(rows, HEADER))
    assert (task.added, task.invalid) == (1, 1)


def test_import_preview_judges_each_row_by_the_strictest_row_of_its_person(
    importing: ImportRunner, importer: Owner, list_id: int
) -> None:
    ada, bea, cy = new_addresses(3)
    rows = [[ada, ""], [bea, ""], [bea, ""], [cy, "unsubscribed"], ["nobody", ""]]
    file = csv_of([*rows, *([each, ""] for each in new_addresses(3)), [ada, "bounced"]], HEADER)
    job = importing.work(importing.begin(importer, list_id, file, dry_run=True))
    assert job.result is not None
    preview = add_samples(importing.resources, job.result)["preview"]
    assert [row.get("code", row.get("status")) for row in preview] == [
        *("row.duplicate", "active", "row.duplicate", "unsubscribed", "email.invalid")
    ]


def test_strictest_row_per_person_counts_in_a_suppression_file(
    importing: ImportRunner, importer: Owner, list_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "ROWS_PER_CHUNK", 2)
    ada, bea, *other_addresses = new_addresses(5)
    rows = [
        [ada, "unsubscribe"],
        [bea, "soft bounce"],
        *([each, "bounce"] for each in other_addresses),
    ]
    rows += [[bea, "bounce"], [ada, "spam"]]
    task = importing.import_members(
        importer, list_id, csv_of(rows, ("email", "reason")), kind="suppressions"
    )
    assert (task.opted_out, task.invalid, task.duplicate) == (5, 1, 1)
    assert list_opt_out_sources(importing, list_id) == [*["bounce"] * 4, "complaint"]


def create_late_opt_outs() -> tuple[list[str], list[str], bytes]:
    """Return addresses of members, addresses of opted-out people, and a file with all addresses.

    The first rows of the file state that the opted-out people are subscribed, and the last rows
    state that they have unsubscribed.
    """
    members = new_addresses(12)
    opted_out = [f"left.{each}" for each in new_addresses(3)]
    subscribed_rows = [[each, "subscribed"] for each in (*opted_out, *members)]
    return (
        members,
        opted_out,
        csv_of([*subscribed_rows, *([each, "unsubscribed"] for each in opted_out)], HEADER),
    )


@pytest.fixture
def _set_two_rows_per_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "ROWS_PER_CHUNK", 2)


@pytest.mark.usefixtures("_set_two_rows_per_chunk")
def test_all_opt_outs_of_an_import_are_kept_before_the_first_member_is_added(
    importing: ImportRunner, importer: Owner, list_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    members, opted_out, file = create_late_opt_outs()
    apply_chunk = applying.apply_chunk
    opt_outs_before: list[int] = []

    def apply_and_cancel(
        uow: UnitOfWork, task: MemberImport, chunk: PreparedChunk, tag_ids: TagIds
    ) -> AppliedChunk:
        applied = apply_chunk(uow, task, chunk, tag_ids)
        if applied.counts["added"]:
            opt_outs_before.append(len(importing.opt_outs(list_id)))
            if len(opt_outs_before) == 2:
                with importing.resources.unit_of_work() as other_uow:
                    job_records.cancel_own_job(other_uow, importing.caller(importer), job_id)
        return applied

    monkeypatch.setattr(applying, "apply_chunk", apply_and_cancel)
    job_id = importing.begin(importer, list_id, file)
    job = importing.work(job_id)
    assert job.status == "cancelled"
    assert opt_outs_before == [len(opted_out)] * len(opt_outs_before)
    assert importing.active(list_id) <= {*members}


class Killed(BaseException):
    """Simulates a killed process. Code that catches ``Exception`` doesn't catch ``Killed``."""


def kill_at(call: int, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    """Kill the process at this call of a function."""
    function = getattr(owner, name)
    calls: Iterator[int] = iter(range(1, 1000))

    def raise_at_call(*arguments: Any) -> Any:
        if next(calls) == call:
            raise Killed
        return function(*arguments)

    monkeypatch.setattr(owner, name, raise_at_call)


@pytest.mark.usefixtures("_set_two_rows_per_chunk")
@pytest.mark.parametrize(
    "step",
    [(StoredChunks, "_store_rows"), (StoredChunks, "mark_next_chunk"), (applying, "commit_chunk")],
    ids=["while the file is read", "while rows are marked", "while chunks are applied"],
)
def test_import_resumes_after_a_worker_is_killed_in_any_phase(
    importing: ImportRunner,
    importer: Owner,
    list_id: int,
    monkeypatch: pytest.MonkeyPatch,
    step: tuple[Any, str],
) -> None:
    members, opted_out, file = create_late_opt_outs()
    job_id = importing.begin(importer, list_id, file)
    with monkeypatch.context() as patch:
        kill_at(3, patch, *step)
        with pytest.raises(Killed):
            importing.work(job_id)
    importing.stack.query(
        "UPDATE jobs SET status = 'queued', run_at = now(), lease_expires_at = NULL"
        " WHERE status = 'running'"
        " AND lease_expires_at < '9999-01-01' AND (id = %s OR subject_id = %s) RETURNING id",
        *(job_id, job_id),
    )
    assert importing.work(job_id).status == "succeeded"
    task = importing.of_job(job_id)
    assert (task.received, task.added, task.opted_out, task.duplicate) == (18, 12, 3, 3)
    assert importing.active(list_id) == {*members}
    assert len(importing.opt_outs(list_id)) == len(opted_out)


@pytest.mark.usefixtures("_set_two_rows_per_chunk")
def test_no_member_is_added_while_opt_outs_of_the_same_file_cannot_be_applied(
    importing: ImportRunner, importer: Owner, list_id: int
) -> None:
    members, opted_out, file = create_late_opt_outs()
    table = "ALTER TABLE users"
    importing.stack.query(
        f"{table} ADD CONSTRAINT refused CHECK (email <> '{opted_out[0]}') NOT VALID"
    )
    try:
        job_id = importing.begin(importer, list_id, file)
        job = importing.work(job_id)
    finally:
        importing.stack.query(f"{table} DROP CONSTRAINT refused")
    assert (job.status, (job.error or {})["code"]) == ("failed", "job.rows_failed")
    assert "No members were added." in (job.error or {})["message"]
    assert importing.active(list_id) == set()
    with importing.resources.unit_of_work() as uow:
        job_records.retry_locked_job(uow, uow.session.get_one(Job, job_id, with_for_update=True))
    assert importing.work(job_id).status == "succeeded"
    assert importing.active(list_id) == {*members}


def store_chunks(importing: ImportRunner, task: MemberImport, *chunks: list[JudgedRow]) -> None:
    """Store chunks as release 1.0.0 did: in the order of the file."""
    key = bulk_files.unwrap_key(importing.resources, task)
    for number, rows in enumerate(chunks):
        name = get_chunk_key(task.object_prefix, number)
        content = seal(judged_rows.encode_rows(rows), key, name)
        importing.resources.objects.put(name, content, "application/octet-stream")


def test_import_read_completely_by_release_1_0_0_is_continued(
    importing: ImportRunner, importer: Owner, list_id: int
) -> None:
    ada, bea, cy = new_addresses(3)
    job_id = importing.begin(importer, list_id, csv_of([[ada]], ["email"]))
    task = importing.of_job(job_id)
    duplicate = JudgedRow(4, code="row.duplicate", reason="It came before.", cells=[ada])
    store_chunks(
        importing,
        task,
        [JudgedRow(2, ada, cells=[ada]), JudgedRow(3, bea, opt_out="unsubscribed", cells=[bea])],
        [duplicate, JudgedRow(5, cy, tier="gold", cells=[cy])],
    )
    importing.stack.query(
        "UPDATE imports SET chunks = 2, received = 4, is_split = true, description = %s"
        " WHERE id = %s RETURNING id",
        *('{"header": ["email"]}', task.id),
    )
    assert importing.work(job_id).status == "succeeded"
    task = importing.of_job(job_id)
    assert (task.added, task.opted_out, task.duplicate) == (2, 1, 1)
    assert importing.active(list_id) == {ada, cy}


@pytest.mark.usefixtures("_set_two_rows_per_chunk")
def test_import_read_partially_by_release_1_0_0_is_read_again(
    importing: ImportRunner, importer: Owner, list_id: int
) -> None:
    members, opted_out, file = create_late_opt_outs()
    job_id = importing.begin(importer, list_id, file)
    task = importing.of_job(job_id)
    rows = [
        JudgedRow(line, address, cells=[address]) for line, address in enumerate(opted_out, start=2)
    ]
    store_chunks(importing, task, rows[:2], rows[2:])
    importing.stack.query(
        "UPDATE imports SET chunks = 2, received = 3, chunk_bytes = 999 WHERE id = %s RETURNING id",
        task.id,
    )
    assert importing.work(job_id).status == "succeeded"
    task = importing.of_job(job_id)
    assert (task.received, task.added, task.opted_out, task.duplicate) == (18, 12, 3, 3)
    assert importing.active(list_id) == {*members}


def test_release_1_0_0_cannot_read_an_import_with_status_values(
    importing: ImportRunner, importer: Owner, list_id: int
) -> None:
    """Release 1.0.0 ignores ``status_values``, so it would add people who have unsubscribed."""
    ada, bea = new_addresses(2)
    file = csv_of([[ada, "1"], [bea, "2"]], HEADER)
    values = {"1": "subscribed", "2": "unsubscribed"}
    job_id = importing.begin(importer, list_id, file, status_values=values)
    task = importing.of_job(job_id)
    store_chunks(importing, task, [JudgedRow(2, ada), JudgedRow(3, bea)])
    with pytest.raises(SerializationFailure, match="all of its options"):
        importing.stack.query(
            "UPDATE imports SET chunks = 1, received = 2, is_split = true, description = %s"
            " WHERE id = %s",
            *('{"format": "csv", "header": ["email", "status"]}', task.id),
        )
    assert importing.work(job_id).status == "succeeded"
    assert importing.active(list_id) == {ada}


@pytest.mark.usefixtures("_set_two_rows_per_chunk")
def test_import_that_repeatedly_crashes_at_the_same_row_fails_after_three_crashes(
    importing: ImportRunner, importer: Owner, list_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although each attempt stores rows before its crash, the crash count must not be reset."""
    job_id = importing.begin(importer, list_id, create_late_opt_outs()[2])
    crashes = []
    for _ in range(3):
        with monkeypatch.context() as patch:
            kill_at(4, patch, StoredChunks, "_store_rows")
            lease = importing.lease(job_id)
            with pytest.raises(Killed):
                next(import_job.run_import(importing.resources, lease))
        expired_at = func.now() - LAST_CRASH_PATIENCE - timedelta(seconds=1)
        update_job(importing.resources, job_id, lease_expires_at=expired_at)
        requeue_lost_jobs(importing.resources, DatabaseWatch())
        crashes.append(importing.job(job_id).crashes)
    assert crashes == [1, 2, 3]
    assert importing.job(job_id).status == "failed"
