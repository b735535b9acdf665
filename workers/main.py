import sys

from core.lanes import Lane
from core.linux import hide_memory
from core.settings import load_settings
from storage.broker import queue_name
from workers import transport
from workers.app import POOLS, build_app
from workers.declaration import TaskTable


def run(lane: Lane, concurrency: int | None, *more: TaskTable) -> None:
    """Work on one lane until told to stop; ends the process."""
    # Before a converter starts: it runs as the same user, and decodes what strangers send.
    hide_memory()
    pool, size = POOLS[lane]
    options = ["--pool", pool, "--queues", queue_name(lane), "--hostname", f"{lane}@%h"]
    if concurrency or size:
        options += ["--concurrency", str(concurrency or size)]
    # Gossip and mingle are messages between workers, and no worker here uses them.
    options += ["--without-gossip", "--without-mingle", "--loglevel", "INFO"]
    transport.install()
    build_app(load_settings(), *more, lane=lane).worker_main(["worker", *options])
    sys.exit(0)
