from services.jobs.lease import Lease
from services.people import account_mails
from workers import context
from workers.declaration import TaskSet

TASKS = TaskSet()


@TASKS.job(account_mails.SEND_ACCOUNT_MAIL)
def mail(lease: Lease) -> None:
    account_mails.send(context.resources(), lease, context.mailer())
