from services.jobs.lease import Lease
from services.mailing.imports import import_jobs
from services.mailing.imports import undo as undoing
from services.mailing.imports.import_jobs import ADD_MEMBERS, IMPORT_FILE
from services.mailing.imports.undo import UNDO_IMPORT
from workers import context
from workers.declaration import TaskSet

TASKS = TaskSet()


@TASKS.job(ADD_MEMBERS)
@TASKS.job(IMPORT_FILE)
def bring(lease: Lease) -> None:
    import_jobs.run(context.resources(), lease)


@TASKS.job(UNDO_IMPORT)
def undo(lease: Lease) -> None:
    undoing.run(context.resources(), lease)
