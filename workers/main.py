"""The process of a worker, which runs a Celery application.

The broker carries only the ids of jobs. The jobs are rows in Postgres, so no setting here can lose
one. The settings make the work prompt and orderly.
"""

import sys
from functools import partial

from celery import Celery

from core.process.garbage_collection import end_start
from core.process.linux import hide_memory
from core.queues import Queue
from core.settings import Settings
from core.settings.process_settings import load_worker_settings
from storage.broker import create_celery_app
from storage.task_messages import queue_name
from workers import alive, canary_task, signals, stopping, sweeper, task_table, transport
from workers.context import ProcessContext
from workers.serving import Serving

_CONFIGURATION = {
    # A message is acknowledged when its task has ended, so the broker delivers the message of a
    # lost worker again. A worker takes no more messages than it works on, in each of its queues.
    "task_acks_late": True,
    "task_reject_on_worker_lost": True,
    "worker_enable_prefetch_count_reduction": False,
    # Don't stop if the broker is lost: the job is in Postgres, and its message may be delivered
    # twice. A stop would count as a crash of the job.
    "worker_cancel_long_running_tasks_on_connection_loss": False,
    # By default a worker gives up after 100 attempts. It also ends at once if the broker responds
    # with an error, for example because its memory is full.
    "broker_connection_max_retries": None,
    "broker_channel_error_retry": True,
    "worker_send_task_events": True,
    "worker_hijack_root_logger": False,
    "worker_redirect_stdouts": False,
    # Pillow's children and Python's arenas grow a little; a fresh process starts small.
    "worker_max_tasks_per_child": 1000,
    "timezone": "UTC",
}


def run_worker(serves: Serving) -> None:
    """Work on these queues until a stop signal, and then exit the process."""
    # Hide the memory before a converter starts. The converter runs as the same user, and decodes
    # untrusted images.
    hide_memory()
    options = ["--pool", serves.pool.value, "--concurrency", str(serves.jobs_at_once)]
    options += ["--queues", ",".join(map(queue_name, serves.limits))]
    options += ["--hostname", f"{serves.name}@%h"]
    # Gossip and mingle are messages between workers, which our workers don't use.
    options += ["--without-gossip", "--without-mingle", "--loglevel", "INFO"]
    settings = load_worker_settings(serves.limits)
    if Queue.REQUEST in serves.limits:
        settings.require_model_key()
    transport.install_transports()
    app = _build_app(settings, serves)
    end_start()
    app.worker_main(["worker", *options])
    sys.exit(0)


def _build_app(settings: Settings, serves: Serving) -> Celery:
    app = create_celery_app(settings)
    app.conf.update(_CONFIGURATION)
    app.amqp_cls = partial(transport.QueueQueues, limits=serves.limits)
    process = ProcessContext(settings, serves)
    task_table.register_tasks(app, process)
    signals.prepare_processes(process)
    canary_task.register_canary(app, process)
    sweeper.start_sweep_with(app)
    stopping.handle_stop_signals(process)
    alive.maintain_alive_file(app, settings)
    signals.serve_metrics(settings)
    return app
