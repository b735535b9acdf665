from datetime import timedelta

from core import clock
from services import idempotency
from services.jobs import requests
from workers import process
from workers.declaration import TaskSet

TASKS = TaskSet()

JOBS_KEPT = timedelta(days=30)


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
