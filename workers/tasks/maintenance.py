from core import clock
from services import retention
from services.mailing import bulk_files, subscriber_counts
from services.media.attachments import strays
from services.media.attachments.files import ORIGINALS
from workers import context
from workers.declaration import TaskSet

TASKS = TaskSet()

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
    retention.purge_outlived(context.resources(), now=clock.now())


@TASKS.periodic("maintenance.fold_counts")
def fold_counts() -> None:
    """Keep few enough differences that counting a list's subscribers stays quick."""
    resources = context.resources()
    folded = MAX_FOLDED_DELTAS
    while folded == MAX_FOLDED_DELTAS:
        with resources.unit_of_work() as uow:
            folded = subscriber_counts.fold_deltas(uow, most=MAX_FOLDED_DELTAS)
