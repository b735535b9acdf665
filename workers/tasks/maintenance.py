from datetime import timedelta

from core import clock
from services import bulk_files, idempotency
from services.attachments import strays
from services.attachments.files import ORIGINALS
from services.jobs import requests
from workers import process
from workers.declaration import TaskSet

TASKS = TaskSet()

JOBS_KEPT = timedelta(days=30)


@TASKS.periodic("maintenance.sweep_uploads")
def sweep_uploads() -> None:
    """Remove uploads that no attachment waits for any more: what a crash left behind."""
    resources = process.resources()
    for stray in strays.find(resources, now=clock.now(), prefixes=(ORIGINALS,)):
        strays.mend(resources, stray)


@TASKS.periodic("maintenance.sweep_files")
def sweep_files() -> None:
    """Remove files of imports and exports that are older than their time, and what a crash left."""
    bulk_files.sweep(process.resources(), now=clock.now())


@TASKS.periodic("maintenance.purge")
def purge() -> None:
    """Forget what has outlived its time, a batch a transaction."""
    resources = process.resources()
    now = clock.now()
    while True:
        with resources.unit_of_work() as uow:
            purged = requests.purge_finished(uow, before=now - JOBS_KEPT)
            purged += idempotency.purge(uow, before=now)
        if not purged:
            return
