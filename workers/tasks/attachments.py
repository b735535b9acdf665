from services.jobs.lease import Lease
from services.media.attachments import processing
from services.media.attachments.upload import PROCESS_ATTACHMENT
from workers import context
from workers.declaration import TaskSet

TASKS = TaskSet()


@TASKS.job(PROCESS_ATTACHMENT)
def convert(lease: Lease) -> None:
    processing.process(context.resources(), lease, context.converter())
