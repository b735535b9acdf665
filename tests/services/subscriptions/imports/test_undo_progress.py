import pytest

from core.errors import DomainError
from core.errors.jobs import JOB_GIVEN_UP
from devstack.harness.stack import Owner
from services import removals
from services.jobs import records as jobs
from services.jobs.kinds import get_kind
from services.subscriptions.imports import records
from services.subscriptions.imports.chunks import chunks
from tests.support.imports.bulk import fail_job
from tests.support.imports.importing import ImportRunner, csv_of, new_addresses

PERSON_COUNT = 60


@pytest.fixture
def new_people() -> list[str]:
    return new_addresses(PERSON_COUNT)


def build_file(people: list[str], name: str = "") -> bytes:
    return csv_of([[each, name] for each in people])


def test_undo_of_a_resumed_import_removes_members_added_since(
    importing: ImportRunner,
    importer: Owner,
    list_id: int,
    new_people: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = importing.import_members(importer, list_id, build_file(new_people))
    importing.stack.query(
        "UPDATE imports SET files_removed_at = NULL, undo_restored = 9e15, undo_removed = 9e15"
        " WHERE id = %s",
        task.id,
    )
    # Restart the import job, as an owner's retry does after an internal error.
    [(job_id,)] = importing.stack.query(
        "SELECT id FROM jobs WHERE kind = 'members.import' AND subject_id = %s", task.id
    )
    with importing.resources.unit_of_work() as uow:
        monkeypatch.setattr(removals, "keep_object", lambda *_: True)
        on_restarted = get_kind("members.import").on_restarted
        assert on_restarted is not None
        assert on_restarted(uow, importing.job(int(str(job_id))))
    importing.stack.query(
        "UPDATE imports SET status = 'succeeded', finished_at = now() WHERE id = %s", task.id
    )
    assert importing.undo(importer, task.id)["undone"] == PERSON_COUNT


def begin_failed_import(
    importing: ImportRunner, owner: Owner, list_id: int, file: bytes
) -> tuple[int, int]:
    """Begin an import, and let its job fail for a reason other than the file.

    Return the id of the import and the id of the job.
    """
    job_id = importing.begin(owner, list_id, file)
    fail_job(importing.stack, job_id, JOB_GIVEN_UP(reason="It broke.", hours=24))
    return importing.of_job(job_id).id, job_id


def retry_error(importing: ImportRunner, owner: Owner, import_id: int) -> str:
    with importing.resources.unit_of_work() as uow, pytest.raises(DomainError) as error:
        records.retry_import(uow, importing.caller(owner), import_id)
    return error.value.code


def test_undone_import_cannot_be_retried(
    importing: ImportRunner, importer: Owner, list_id: int, new_people: list[str]
) -> None:
    import_id, _ = begin_failed_import(importing, importer, list_id, build_file(new_people))
    undo_id = importing.begin_undo(importer, import_id)
    assert retry_error(importing, importer, import_id) == "job.not_retryable"
    assert importing.work(undo_id).status == "succeeded"
    # The undo of the import has already run, so it can't remove members that a retry of the import
    # would add.
    assert retry_error(importing, importer, import_id) == "job.not_retryable"
    assert importing.active(list_id) == set()


def test_retried_import_undo_is_rejected_while_the_import_is_running_again(
    importing: ImportRunner, importer: Owner, list_id: int, new_people: list[str]
) -> None:
    import_id, job_id = begin_failed_import(importing, importer, list_id, build_file(new_people))
    caller = importing.caller(importer)
    undo_id = importing.begin_undo(importer, import_id)
    with importing.resources.unit_of_work() as uow:
        jobs.cancel_own_job(uow, caller, undo_id)
    with importing.resources.unit_of_work() as uow:
        records.retry_import(uow, caller, import_id)
    with importing.resources.unit_of_work() as uow:
        jobs.retry_own_job(uow, caller, undo_id)
    rejected_job = importing.work(undo_id)
    assert rejected_job.error is not None
    assert rejected_job.error["code"] == "import.running"
    assert importing.work(job_id).status == "succeeded"
    assert importing.active(list_id) == set(new_people)
    assert importing.undo(importer, import_id)["undone"] == PERSON_COUNT
    assert importing.active(list_id) == set()


def test_import_undo_keeps_existing_records_whose_previous_state_is_lost(
    importing: ImportRunner, importer: Owner, list_id: int, new_people: list[str]
) -> None:
    importing.import_members(importer, list_id, build_file(new_people))
    importing.stack.query("UPDATE subscriptions SET status = 'removed' WHERE list_id = %s", list_id)
    task = importing.import_members(importer, list_id, build_file(new_people))
    importing.stack.query("DELETE FROM import_changes WHERE import_id = %s", task.id)
    assert importing.undo(importer, task.id) == {
        "import_id": task.id,
        "undone": 0,
        "kept": PERSON_COUNT,
    }
    assert len(importing.records(list_id)) == PERSON_COUNT


def test_import_undo_requested_in_time_continues_after_the_deadline(
    importing: ImportRunner,
    importer: Owner,
    list_id: int,
    new_people: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chunks, "ROWS_PER_CHUNK", 20)
    task = importing.import_members(importer, list_id, build_file(new_people))
    job_id = importing.begin_undo(importer, task.id)
    importing.stack.query(
        "UPDATE imports SET created_at = now() - interval '91 days' WHERE id = %s", task.id
    )
    assert importing.begin_undo(importer, task.id) == job_id
    assert importing.work(job_id).status == "succeeded"
    assert importing.active(list_id) == set()
