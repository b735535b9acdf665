"""The entry point of a worker process, which runs a Celery application.

Messages contain only the ids of jobs in Postgres, so a wrong Celery setting can delay a job but not
lose it.
"""

import sys
from functools import partial

from celery import Celery

from core.process.garbage_collection import end_start
from core.process.linux import hide_memory, lower_priority, return_freed_blocks
from core.queues import Queue
from core.settings import Settings
from core.settings.process_settings import load_worker_settings
from storage.broker import create_celery_app
from storage.task_messages import queue_name
from workers import alive, canary_task, signals, stopping, sweeper, task_table, transport
from workers.context import ProcessContext
from workers.serving import Pool, Serving

_CONFIGURATION = {
    # Acknowledge a message only after its task, so that the broker delivers the messages of a
    # crashed worker again.
    "task_acks_late": True,
    "task_reject_on_worker_lost": True,
    "worker_enable_prefetch_count_reduction": False,
    # Jobs continue without a connection to the broker, because a stopped job would count as
    # crashed. Delivering a task twice does no harm.
    "worker_cancel_long_running_tasks_on_connection_loss": False,
    # By default, a worker exits after 100 failed connections to the broker. By default, a worker
    # exits if the broker returns an error, for example because its memory is full.
    "broker_connection_max_retries": None,
    "broker_channel_error_retry": True,
    "worker_send_task_events": True,
    "worker_hijack_root_logger": False,
    "worker_redirect_stdouts": False,
    # Replace pool processes after many tasks, because their memory slowly grows.
    "worker_max_tasks_per_child": 1000,
    "timezone": "UTC",
}


def run_worker(serves: Serving) -> None:
    if serves.pool is Pool.PREFORK:
        # Imports and image conversions need much processor time, so let short API calls run first.
        lower_priority()
        return_freed_blocks()
    # Hide the worker's memory from the image converter, which runs as the same user and decodes
    # untrusted images.
    hide_memory()
    options = ["--pool", serves.pool.value, "--concurrency", str(serves.max_concurrent_jobs)]
    options += ["--queues", ",".join(map(queue_name, serves.limits))]
    options += ["--hostname", f"{serves.name}@%h"]
    # Pressroom's workers don't need gossip and mingle, which are messages between workers.
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
    app.amqp_cls = partial(transport.LimitedQueues, limits=serves.limits)
    process = ProcessContext(settings, serves)
    task_table.register_tasks(app, process)
    signals.prepare_processes(process)
    canary_task.register_canary(app, process)
    sweeper.start_sweep_with(app)
    stopping.handle_stop_signals(process)
    alive.maintain_alive_file(app, settings)
    signals.serve_metrics(settings)
    return app
