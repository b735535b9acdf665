import sys

from core.lanes import Lane
from core.process.linux import hide_memory
from core.settings import load_settings
from storage.broker import queue_name
from workers.app import build_app
from workers.declaration import TaskTable
from workers.queues import transport
from workers.queues.serving import Serving


def run(serves: Serving, *more: TaskTable) -> None:
    """Work on these lanes until told to stop; ends the process."""
    # Before a converter starts: it runs as the same user, and decodes what strangers send.
    hide_memory()
    options = ["--pool", serves.pool.value, "--concurrency", str(serves.jobs_at_once)]
    options += ["--queues", ",".join(map(queue_name, serves.limits))]
    options += ["--hostname", f"{'+'.join(serves.limits)}@%h"]
    # Gossip and mingle are messages between workers, and no worker here uses them.
    options += ["--without-gossip", "--without-mingle", "--loglevel", "INFO"]
    settings = load_settings()
    if Lane.REQUEST in serves.limits:
        settings.require_model_key()
    transport.install()
    build_app(settings, *more, serves=serves).worker_main(["worker", *options])
    sys.exit(0)
