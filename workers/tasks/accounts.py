from services.jobs.lease import Lease
from services.people import account_mails
from workers import process
from workers.declaration import TaskSet

TASKS = TaskSet()


@TASKS.job(account_mails.SEND)
def mail(lease: Lease) -> None:
    account_mails.send(process.resources(), lease, process.mailer())
