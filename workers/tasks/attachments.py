from services.jobs.lease import Lease
from services.media.attachments import processing
from services.media.attachments.upload import PROCESS
from workers import process
from workers.declaration import TaskSet

TASKS = TaskSet()


@TASKS.job(PROCESS)
def convert(lease: Lease) -> None:
    processing.process(process.resources(), lease, process.converter())
