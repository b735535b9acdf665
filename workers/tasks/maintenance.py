from datetime import timedelta

from core import clock
from services.access import sessions
from services.jobs import idempotency, records
from services.mailing import bulk_files, subscriber_counts
from services.media.attachments import strays
from services.media.attachments.files import ORIGINALS
from services.oauth import codes, tokens
from services.people import account_mails, logins, mailed_tokens
from workers import context
from workers.declaration import TaskSet

TASKS = TaskSet()

JOB_RETENTION = timedelta(days=30)
# So that one that comes a second time ends what it gave, for as long as that is likely.
CODE_RETENTION = timedelta(days=30)
MAX_FOLDED_DELTAS = 10_000


@TASKS.periodic("maintenance.sweep_uploads")
def sweep_uploads() -> None:
    """Remove uploads that no attachment waits for any more: what a crash left behind."""
    resources = context.resources()
    for stray in strays.find(resources, now=clock.now(), prefixes=(ORIGINALS,)):
        strays.mend(resources, stray)


@TASKS.periodic("maintenance.sweep_files")
def sweep_files() -> None:
    """Remove files of imports and exports that are older than their time, and what a crash left."""
    bulk_files.sweep(context.resources(), now=clock.now())


@TASKS.periodic("maintenance.purge")
def purge() -> None:
    """Forget what has outlived its time, a batch a transaction."""
    resources = context.resources()
    now = clock.now()
    while True:
        with resources.unit_of_work() as uow:
            purged = records.purge_finished(uow, before=now - JOB_RETENTION)
            purged += idempotency.purge(uow, before=now)
            purged += mailed_tokens.purge(uow, before=now)
            purged += account_mails.purge(uow, before=now - account_mails.ACCOUNT_MAIL_RETENTION)
            purged += sessions.purge(uow, before=now)
            purged += logins.purge(uow, before=now - logins.ATTEMPT_RETENTION)
            purged += codes.purge(uow, before=now - CODE_RETENTION)
            purged += tokens.purge(uow, before=now)
        if not purged:
            return


@TASKS.periodic("maintenance.fold_counts")
def fold_counts() -> None:
    """Keep few enough differences that counting a list's subscribers stays quick."""
    resources = context.resources()
    folded = MAX_FOLDED_DELTAS
    while folded == MAX_FOLDED_DELTAS:
        with resources.unit_of_work() as uow:
            folded = subscriber_counts.fold_deltas(uow, max_deltas=MAX_FOLDED_DELTAS)
