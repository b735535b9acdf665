"""A worker's process, and its Celery application.

The broker only carries the ids of jobs, which are stored in Postgres. These settings are about
prompt and orderly work; no job is lost by them.
"""

import sys
from functools import partial

from celery import Celery

from core.process.garbage_collection import end_start
from core.process.linux import hide_memory
from core.queues import Queue
from core.settings import Settings
from core.settings.process_settings import load_worker_settings
from storage.broker import celery_app
from storage.task_messages import queue_name
from workers import alive, signals, stopping, sweeper, task_table, transport
from workers.context import ProcessContext
from workers.serving import Serving

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


def run(serves: Serving) -> None:
    """Work on these queues until told to stop; ends the process."""
    # Before a converter starts: it runs as the same user, and decodes what strangers send.
    hide_memory()
    options = ["--pool", serves.pool.value, "--concurrency", str(serves.jobs_at_once)]
    options += ["--queues", ",".join(map(queue_name, serves.limits))]
    options += ["--hostname", f"{serves.name}@%h"]
    # Gossip and mingle are messages between workers, and no worker here uses them.
    options += ["--without-gossip", "--without-mingle", "--loglevel", "INFO"]
    settings = load_worker_settings(serves.limits)
    if Queue.REQUEST in serves.limits:
        settings.require_model_key()
    transport.install()
    app = _build_app(settings, serves)
    end_start()
    app.worker_main(["worker", *options])
    sys.exit(0)


def _build_app(settings: Settings, serves: Serving) -> Celery:
    app = celery_app(settings)
    app.conf.update(_CONFIGURATION)
    app.amqp_cls = partial(transport.QueueQueues, limits=serves.limits)
    process = ProcessContext(settings, serves)
    task_table.bind(app, process)
    signals.connect(process)
    sweeper.bind_canary(app, process)
    sweeper.connect(app)
    stopping.connect(process)
    alive.connect(app, settings)
    signals.serve_metrics(settings)
    return app
