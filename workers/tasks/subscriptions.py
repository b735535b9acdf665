from services.jobs.lease import Lease
from services.mailing.subscriptions import mails
from services.mailing.subscriptions.subscribe import MAIL_CONFIRMATION, MAIL_WELCOME
from workers import context
from workers.declaration import TaskSet

TASKS = TaskSet()


@TASKS.job(MAIL_CONFIRMATION)
def mail_confirmation(lease: Lease) -> None:
    mails.send_confirmation(context.resources(), lease, context.mailer())


@TASKS.job(MAIL_WELCOME)
def mail_welcome(lease: Lease) -> None:
    mails.send_welcome(context.resources(), lease, context.mailer())
