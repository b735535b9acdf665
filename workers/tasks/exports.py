from services.jobs.lease import Lease
from services.mailing import exports
from services.mailing.exports import JOBS, ExportKind
from workers import context
from workers.declaration import TaskSet

TASKS = TaskSet()


@TASKS.job(JOBS[ExportKind.MEMBERS])
@TASKS.job(JOBS[ExportKind.DELIVERY])
def write(lease: Lease) -> None:
    exports.run(context.resources(), lease)
