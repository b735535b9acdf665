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

JOBS_KEPT = timedelta(days=30)
# So that one that comes a second time ends what it gave, for as long as that is likely.
CODES_KEPT = timedelta(days=30)
FOLDED_AT_ONCE = 10_000


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
            purged = records.purge_finished(uow, before=now - JOBS_KEPT)
            purged += idempotency.purge(uow, before=now)
            purged += mailed_tokens.purge(uow, before=now)
            purged += account_mails.purge(uow, before=now - account_mails.KEPT)
            purged += sessions.purge(uow, before=now)
            purged += logins.purge(uow, before=now - logins.FORGOTTEN_AFTER)
            purged += codes.purge(uow, before=now - CODES_KEPT)
            purged += tokens.purge(uow, before=now)
        if not purged:
            return


@TASKS.periodic("maintenance.fold_counts")
def fold_counts() -> None:
    """Keep few enough differences that counting a list's subscribers stays quick."""
    resources = context.resources()
    folded = FOLDED_AT_ONCE
    while folded == FOLDED_AT_ONCE:
        with resources.unit_of_work() as uow:
            folded = subscriber_counts.fold(uow, most=FOLDED_AT_ONCE)
