"""The Celery application of the workers.

The broker only carries ids of jobs whose truth is in Postgres, so these settings are about prompt
and orderly work. That nothing is lost does not depend on them.
"""

from dataclasses import dataclass

from celery import Celery

from core.lanes import Lane
from core.settings import Settings
from storage.broker import celery_app
from workers import schedule, signals, sweeper
from workers.context import IO_THREADS, ProcessContext
from workers.declaration import TaskTable
from workers.tasks.table import TASKS

SOFT_TIME_LIMIT_SECONDS = 60
HARD_TIME_LIMIT_SECONDS = 75


@dataclass(frozen=True)
class LaneProfile:
    pool: str
    concurrency: int | None  # None: one process per core


# Threads serve calls that wait for other people's servers; processes do what needs a core.
PROFILES = {
    Lane.IO: LaneProfile("threads", IO_THREADS),
    Lane.MEDIA: LaneProfile("prefork", None),
    Lane.BULK: LaneProfile("prefork", 1),
}


def build_app(settings: Settings, *more: TaskTable, lane: Lane | None = None) -> Celery:
    """The product's tasks, and ``more`` of a worker that tests or benchmarks compose."""
    app = celery_app(settings)
    app.conf.update(
        # A message is acknowledged when its task has ended, so that a lost worker's is delivered
        # again, and no more are taken from the queue than are worked on.
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        worker_prefetch_multiplier=1,
        task_soft_time_limit=SOFT_TIME_LIMIT_SECONDS,
        task_time_limit=HARD_TIME_LIMIT_SECONDS,
        # A lost broker is no reason to stop: a job's truth is in Postgres, and its message may be
        # delivered twice. Stopping would count as a crash of the job.
        worker_cancel_long_running_tasks_on_connection_loss=False,
        # By default a worker gives up after 100 tries, and ends at once when the broker answers
        # with an error, as one without memory does.
        broker_connection_max_retries=None,
        broker_channel_error_retry=True,
        # On SIGTERM tasks under way get this long to end before the worker gives them back.
        worker_soft_shutdown_timeout=settings.worker_grace,
        worker_enable_soft_shutdown_on_idle=False,
        worker_send_task_events=True,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        # Pillow's children and Python's arenas grow a little; a fresh process starts small.
        worker_max_tasks_per_child=1000,
        beat_schedule=schedule.SCHEDULE,
        beat_max_loop_interval=30,
        timezone="UTC",
    )
    process = ProcessContext(settings, lane)
    for tasks in (TASKS, *more):
        tasks.bind(app, process)
    signals.connect(process)
    sweeper.connect(app)
    return app
