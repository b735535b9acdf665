"""The Celery application of the workers.

The broker only carries the ids of jobs, which are stored in Postgres. These settings are about
prompt and orderly work; no job is lost by them.
"""

from functools import partial

from celery import Celery

from core.settings import Settings
from storage.broker import celery_app
from workers import alive, signals, stopping, sweeper, task_table
from workers.context import ProcessContext
from workers.serving import Serving
from workers.transport import QueueQueues

_CONFIGURATION = {
    # A message is acknowledged when its task has ended, so the broker delivers the message of a
    # lost worker again. A worker takes no more messages than it works on, in each of its queues.
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


def build_app(settings: Settings, *, serves: Serving) -> Celery:
    app = celery_app(settings)
    app.conf.update(_CONFIGURATION)
    app.amqp_cls = partial(QueueQueues, limits=serves.limits)
    process = ProcessContext(settings, serves)
    task_table.bind(app, process)
    signals.connect(process)
    sweeper.bind_canary(app, process)
    sweeper.connect(app)
    stopping.connect(process)
    alive.connect(app, settings)
    signals.serve_metrics(settings)
    return app
