from services.imports import running, undoing
from services.imports.running import ADD_MEMBERS, IMPORT_FILE
from services.imports.undoing import UNDO
from services.jobs.lease import Lease
from workers import process
from workers.declaration import TaskSet

TASKS = TaskSet()


@TASKS.job(ADD_MEMBERS)
@TASKS.job(IMPORT_FILE)
def bring(lease: Lease) -> None:
    running.run(process.resources(), lease)


@TASKS.job(UNDO)
def undo(lease: Lease) -> None:
    undoing.run(process.resources(), lease)
