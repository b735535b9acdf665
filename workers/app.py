"""The Celery application of the workers.

The broker only carries the ids of jobs, which are stored in Postgres. So these settings are about
prompt and orderly work; no job is lost by them.
"""

from functools import partial

from celery import Celery

from core.settings import Settings
from storage.broker import celery_app
from workers import alive, scraped, signals, stopping, sweeper
from workers.context import ProcessContext
from workers.declaration import TaskTable
from workers.queues.lane_consumers import LaneQueues
from workers.queues.serving import Serving
from workers.tasks import canary
from workers.tasks.table import TASKS

_CONFIGURATION = {
    # A message is acknowledged when its task has ended, so the broker delivers the message of a
    # lost worker again. A worker takes no more messages than it works on, in each of its lanes.
    "task_acks_late": True,
    "task_reject_on_worker_lost": True,
    "worker_enable_prefetch_count_reduction": False,
    # A lost broker is no reason to stop: the job is in Postgres, and its message may be delivered
    # twice. Stopping would count as a crash of the job.
    "worker_cancel_long_running_tasks_on_connection_loss": False,
    # By default a worker gives up after 100 tries, and ends at once when the broker answers with
    # an error, as a broker without memory does.
    "broker_connection_max_retries": None,
    "broker_channel_error_retry": True,
    "worker_send_task_events": True,
    "worker_hijack_root_logger": False,
    "worker_redirect_stdouts": False,
    # Pillow's children and Python's arenas grow a little; a fresh process starts small.
    "worker_max_tasks_per_child": 1000,
    "timezone": "UTC",
}


def build_app(settings: Settings, *more: TaskTable, serves: Serving) -> Celery:
    """The application with the product's tasks, and with ``more`` that tests or benchmarks add."""
    app = celery_app(settings)
    app.conf.update(_CONFIGURATION)
    app.amqp_cls = partial(LaneQueues, limits=serves.limits)
    process = ProcessContext(settings, serves)
    for tasks in (TASKS, *more):
        tasks.bind(app, process)
    signals.connect(process)
    canary.connect(app, process)
    sweeper.connect(app)
    stopping.connect(process)
    alive.connect(app, settings)
    scraped.connect(settings)
    return app
