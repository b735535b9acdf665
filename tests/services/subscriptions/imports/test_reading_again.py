from typing import Any

import pytest

from core.errors import DomainError
from devstack.harness.stack import Owner
from models import ImportChunk
from services import removals
from services.jobs.lease import LeaseLost
from services.jobs.transitions import hand_back_job
from services.subscriptions.imports import import_job, records
from services.subscriptions.imports.chunks import chunks
from services.subscriptions.imports.import_options import ImportOptions
from tests.support.imports.importing import ImportRunner, csv_of, new_addresses
from tests.support.imports.turns import ShortTurn

FILE = csv_of([("ada@example.com", "Ada", "Rome"), ("nobody", "", "")], ("email", "name", "town"))

LONG_FILE = csv_of([[each, "", "Rome"] for each in new_addresses(9)], ("email", "name", "town"))


def read_again(importing: ImportRunner, owner: Owner, import_id: int, **options: Any) -> int:
    with importing.resources.unit_of_work() as uow:
        caller = importing.caller(owner)
        return records.read_again(uow, caller, import_id, ImportOptions(**options)).id


def find_error_code(importing: ImportRunner, owner: Owner, import_id: int, **options: Any) -> str:
    with pytest.raises(DomainError) as error:
        read_again(importing, owner, import_id, **options)
    return error.value.code


def test_import_file_is_deleted_after_the_import(
    importing: ImportRunner, importer: Owner, list_id: int
) -> None:
    dry_run = importing.import_members(importer, list_id, FILE, dry_run=True)
    importing.work(read_again(importing, importer, dry_run.id))
    assert find_error_code(importing, importer, dry_run.id, dry_run=True) == "import.file_gone"
    removals.process_due_removals(importing.resources)
    assert list(importing.resources.objects.list_objects(f"{dry_run.object_prefix}/")) == []


def test_concurrent_second_import_of_a_dry_run_file_is_rejected_as_running(
    importing: ImportRunner, importer: Owner, list_id: int
) -> None:
    dry_run = importing.import_members(importer, list_id, FILE, dry_run=True)
    job_id = read_again(importing, importer, dry_run.id)
    assert find_error_code(importing, importer, dry_run.id) == "import.running"
    importing.work(job_id)
    with importing.resources.unit_of_work() as uow:
        chunks = uow.session.query(ImportChunk).filter_by(import_id=dry_run.id).count()
    assert chunks == 1


def test_dry_run_file_is_kept_only_for_its_retention_period(
    importing: ImportRunner, importer: Owner, list_id: int
) -> None:
    dry_run = importing.import_members(importer, list_id, FILE, dry_run=True)
    removals.process_due_removals(importing.resources)
    assert list(importing.resources.objects.list_objects(f"{dry_run.object_prefix}/"))
    importing.stack.query(
        "UPDATE object_removals SET try_at = now() WHERE key = %s", f"{dry_run.object_prefix}/"
    )
    removals.process_due_removals(importing.resources)
    assert list(importing.resources.objects.list_objects(f"{dry_run.object_prefix}/")) == []
    assert find_error_code(importing, importer, dry_run.id) == "import.file_gone"


def test_file_opened_for_a_dry_run_is_not_reused_for_an_import_with_other_options(
    importing: ImportRunner, importer: Owner, list_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "ROWS_PER_CHUNK", 1)
    monkeypatch.setattr(import_job, "Turn", ShortTurn)
    # A process opens the file, and loses the job to another process.
    dry_run_id = importing.begin(importer, list_id, LONG_FILE, dry_run=True)
    stale_lease = importing.lease(dry_run_id)
    turns = import_job.run_import(importing.resources, stale_lease)
    next(turns)
    with importing.resources.unit_of_work() as uow:
        hand_back_job(uow, stale_lease)
    assert importing.work(dry_run_id).status == "succeeded"
    import_id = importing.of_job(dry_run_id).id
    job_id = read_again(importing, importer, import_id, mapping={"town": "tags"})
    with pytest.raises(LeaseLost):
        next(turns)
    assert importing.work(job_id).status == "succeeded"
    [(tags,)] = importing.stack.query(
        "SELECT count(*) FROM tags WHERE list_id = %s AND name = 'Rome'", list_id
    )
    assert tags == 1
