from services.attachments import processing
from services.attachments.upload import PROCESS
from services.jobs.lease import Lease
from workers import process
from workers.declaration import TaskSet

TASKS = TaskSet()


@TASKS.job(PROCESS)
def convert(lease: Lease) -> None:
    processing.process(process.resources(), lease, process.converter())
