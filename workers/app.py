"""The Celery application of the workers.

The broker only carries the ids of jobs, which are stored in Postgres. So these settings are about
prompt and orderly work; no job is lost by them.
"""

from celery import Celery

from core.lanes import Lane
from core.settings import Settings
from storage.broker import celery_app
from workers import alive, signals, sweeper
from workers.context import IO_THREADS, ProcessContext
from workers.declaration import TaskTable
from workers.tasks import canary
from workers.tasks.table import TASKS

SOFT_TIME_LIMIT_SECONDS = 60
HARD_TIME_LIMIT_SECONDS = 75


# The pool of each lane and its size; ``None``: one process per core. Threads serve calls that wait
# for other people's servers; processes do work that needs a core.
POOLS = {
    Lane.IO: ("threads", IO_THREADS),
    Lane.MEDIA: ("prefork", None),
    Lane.BULK: ("prefork", 1),
}

_CONFIGURATION = {
    # A message is acknowledged when its task has ended, so the broker delivers the message of a
    # lost worker again. A worker takes no more messages than it works on.
    "task_acks_late": True,
    "task_reject_on_worker_lost": True,
    "worker_prefetch_multiplier": 1,
    "task_soft_time_limit": SOFT_TIME_LIMIT_SECONDS,
    "task_time_limit": HARD_TIME_LIMIT_SECONDS,
    # A lost broker is no reason to stop: the job is in Postgres, and its message may be delivered
    # twice. Stopping would count as a crash of the job.
    "worker_cancel_long_running_tasks_on_connection_loss": False,
    # By default a worker gives up after 100 tries, and ends at once when the broker answers with
    # an error, as a broker without memory does.
    "broker_connection_max_retries": None,
    "broker_channel_error_retry": True,
    "worker_enable_soft_shutdown_on_idle": False,
    "worker_send_task_events": True,
    "worker_hijack_root_logger": False,
    "worker_redirect_stdouts": False,
    # Pillow's children and Python's arenas grow a little; a fresh process starts small.
    "worker_max_tasks_per_child": 1000,
    "timezone": "UTC",
}


def build_app(settings: Settings, *more: TaskTable, lane: Lane | None = None) -> Celery:
    """The application with the product's tasks, and with ``more`` that tests or benchmarks add."""
    app = celery_app(settings)
    # On SIGTERM tasks under way get this long to end before the worker gives them back.
    app.conf.update(_CONFIGURATION, worker_soft_shutdown_timeout=settings.worker_grace)
    process = ProcessContext(settings, lane)
    for tasks in (TASKS, *more):
        tasks.bind(app, process)
    signals.connect(process)
    canary.connect(app, process)
    sweeper.connect(app)
    alive.connect(app, settings)
    return app
