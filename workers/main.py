import sys

from core.process.garbage_collection import end_start
from core.process.linux import hide_memory
from core.queues import Queue
from core.settings.process_settings import load_worker_settings
from storage.broker import queue_name
from workers import transport
from workers.app import build_app
from workers.serving import Serving


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
    app = build_app(settings, serves=serves)
    end_start()
    app.worker_main(["worker", *options])
    sys.exit(0)
