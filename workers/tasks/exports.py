from services.jobs.lease import Lease
from services.mailing import exports
from services.mailing.exports import EXPORT_JOBS, ExportKind
from workers import context
from workers.declaration import TaskSet

TASKS = TaskSet()


@TASKS.job(EXPORT_JOBS[ExportKind.MEMBERS])
@TASKS.job(EXPORT_JOBS[ExportKind.DELIVERY])
def write(lease: Lease) -> None:
    exports.run(context.resources(), lease)
