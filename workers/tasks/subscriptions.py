from services.jobs.lease import Lease
from services.mailing.subscriptions import mails
from services.mailing.subscriptions.subscribe import MAIL_CONFIRMATION, MAIL_WELCOME
from workers import process
from workers.declaration import TaskSet

TASKS = TaskSet()


@TASKS.job(MAIL_CONFIRMATION)
def mail_confirmation(lease: Lease) -> None:
    mails.send_confirmation(process.resources(), lease, process.mailer())


@TASKS.job(MAIL_WELCOME)
def mail_welcome(lease: Lease) -> None:
    mails.send_welcome(process.resources(), lease, process.mailer())
