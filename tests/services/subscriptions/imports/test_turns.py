import pytest

from devstack.harness.stack import Owner
from services.jobs.lease import Lease
from services.subscriptions import lists
from services.subscriptions.imports import chunks, import_job, split
from storage.encryption import Tampered
from tests.erasing import erase
from tests.importing import Importing, csv_of, new_addresses

FILES = 3
TURNS = 100


class Steps:
    """A turn of so many steps, whatever time they take."""

    def __init__(self) -> None:
        self._left = 4

    def is_over(self) -> bool:
        self._left -= 1
        return self._left < 0


def file_of(rows: int) -> bytes:
    return csv_of([[each, ""] for each in new_addresses(rows)])


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "ROWS_PER_CHUNK", 2)
    monkeypatch.setattr(import_job, "Turn", Steps)


def test_more_long_files_than_a_process_keeps_open_are_all_read_to_their_end(
    importing: Importing, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(split, "MAX_OPEN_FILES", 1)
    jobs = [importing.begin(owner, importing.new_list(owner), file_of(30)) for _ in range(FILES)]
    staying: dict[int, Lease] = {}
    for _ in range(TURNS):
        for job_id in jobs:
            lease = staying.pop(job_id, None) or importing.claim(job_id)
            if lease is not None and import_job.run(importing.resources, lease):
                staying[job_id] = lease
    for job_id in jobs:
        importing.help(job_id)
    tasks = [importing.of_job(job_id) for job_id in jobs]
    assert [(task.received, task.added, task.duplicate) for task in tasks] == [(30, 30, 0)] * FILES
    assert [importing.job(job_id).status for job_id in jobs] == ["succeeded"] * FILES


def test_erasing_an_owner_ends_their_imports_and_removes_the_files(
    importing: Importing, owner: Owner, list_id: int
) -> None:
    job_id = importing.begin(owner, list_id, file_of(41))
    lease = importing.lease(job_id)
    import_job.run(importing.resources, lease)
    task = importing.of_job(job_id)
    prefix = f"{task.object_prefix}/"
    assert importing.stack.stored(prefix)
    with importing.resources.unit_of_work() as uow:
        lists.archive(uow, lists.get(uow, list_id))
    erase(importing.resources, owner.email)
    ended = importing.stack.query(
        "SELECT status, filename, wrapped_key, finished_at IS NOT NULL,"
        " files_removed_at IS NOT NULL FROM imports WHERE id = %s",
        task.id,
    )
    assert ended == [("cancelled", None, None, True, True)]
    assert not importing.stack.stored(prefix)


def test_an_import_whose_file_was_changed_in_storage_fails_and_keeps_what_it_has(
    importing: Importing, owner: Owner, list_id: int
) -> None:
    job_id = importing.begin(owner, list_id, file_of(41))
    prefix = importing.of_job(job_id).object_prefix
    [name] = importing.stack.stored(f"{prefix}/")
    sealed = bytearray(importing.resources.objects.get(name))
    sealed[-1] ^= 1
    importing.resources.objects.put(name, bytes(sealed), "application/octet-stream")
    with pytest.raises(Tampered):
        importing.work(job_id)
    assert importing.of_job(job_id).added == 0
