"""The processes that a deployment runs, each in the foreground.

Each command imports what it needs when it runs: these processes start many times a day on a
developer's machine, and none needs what the others do.
"""

import os
import signal
from importlib.util import find_spec
from threading import Thread
from typing import Annotated

import typer

from cli.output import Json, show
from core.queues import Queue

# Every `pressroom` command imports this module, so it imports the stack's code only when a command
# of the stack runs.


def register(app: typer.Typer) -> None:
    # The image of a deployment has no development stack.
    stack = (up, down, status, reset) if find_spec("devstack") else ()
    for command in (*stack, serve, worker, flower, migrate, bucket):
        app.command()(command)


def up(
    detach: Annotated[
        bool, typer.Option("--detach", help="Return once the stack is ready; it keeps running.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Start the development stack. It has services, API, workers, Flower and a sandbox."""
    from devstack.supervisor import commands

    raise typer.Exit(commands.start_stack(detach=detach, as_json=as_json))


def down(as_json: Json = False) -> None:
    """Stop the stack and wait until every process has ended. Its data stays."""
    from devstack.supervisor import commands

    raise typer.Exit(commands.stop_stack(as_json=as_json))


def status(as_json: Json = False) -> None:
    """Show each process of the running stack. The exit code is 3 when no stack runs."""
    from devstack.supervisor import commands

    raise typer.Exit(commands.show_status(as_json=as_json))


def reset(
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False, as_json: Json = False
) -> None:
    """Stop the stack and delete its data. Database, queues, images, keys and logs go."""
    from devstack.supervisor import commands, home_folder

    place = home_folder.find_home()
    if not yes:
        typer.confirm(f"Delete all data in {place.path}?", abort=True, err=True)
    raise typer.Exit(commands.reset_stack(as_json=as_json))


# The time for requests under way, once the API is asked to end.
API_GRACE_SECONDS = 20

Host = Annotated[str, typer.Option(help="Address to listen on.")]


def serve(
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 8000,
    processes: Annotated[int, typer.Option(min=1, help="API processes to run.")] = 1,
    as_json: Json = False,
) -> None:
    """Run the API."""
    import uvicorn

    from api.client_connections import (
        KEEP_ALIVE_SECONDS,
        BoundedConnection,
        raise_file_descriptor_limit,
    )
    from cli.connection import database_errors
    from core.settings import load_settings
    from storage.database import require_time_limits

    # The application asks for them too, but a process of its own may start it again and again.
    settings = load_settings()
    settings.forwarding_networks()
    with database_errors():
        require_time_limits(settings)
    raise_file_descriptor_limit()
    # uvicorn raises the signal again once all is answered and closed; a stop that was asked for is
    # no failure. Python's own end would take modules apart for two seconds of a core, and many more
    # on a busy machine, in which the process neither serves nor ends.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    uvicorn.run(
        "api.main:app",
        host=host,
        port=port,
        workers=processes,
        log_config=None,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=API_GRACE_SECONDS,
        http=BoundedConnection,
        ws="none",
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
    )


def worker(
    queue: Annotated[list[Queue], typer.Option(help="A queue to work on. Give it for each queue.")],
    concurrency: Annotated[
        int | None,
        typer.Option(
            min=1, help="Jobs at a time in each queue; by default, the queue's own number."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a worker for one queue or several."""
    # SIGTERM begins a soft shutdown. Celery reads this variable when it is imported.
    os.environ.setdefault("REMAP_SIGTERM", "SIGQUIT")
    from core.counters.shared_counts import share_counts

    share_counts()
    from cli.connection import database_errors, use_running_stack
    from core.settings.process_settings import load_worker_settings
    from storage.database import require_time_limits
    from workers.main import run_worker
    from workers.serving import QueuesDontMix, plan_serving

    try:
        serves = plan_serving(queue, concurrency)
    except QueuesDontMix as error:
        raise typer.BadParameter(str(error), param_hint="--queue") from None
    use_running_stack()
    with database_errors():
        require_time_limits(load_worker_settings(queue))
    run_worker(serves)


def flower(
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 5555,
    host_name: Annotated[
        list[str] | None, typer.Option(help="Answer to this host name alone; repeat for several.")
    ] = None,
    periodic: Annotated[bool, typer.Option("--periodic", help="Show periodic work, too.")] = False,
    as_json: Json = False,
) -> None:
    """Run Flower, the page that shows workers and tasks. It asks for a password."""
    from core.settings import read_settings
    from core.settings.store_settings import FlowerSettings
    from workers.flower_server import run_flower

    names = host_name or ()
    run_flower(read_settings(FlowerSettings), host, port, names, shows_periodic=periodic)


def migrate(
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Only wait until another process has migrated the database."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Bring the database to the newest revision. The application's role may then use its rows."""
    from cli.connection import database_errors
    from core.log_output import configure_logging
    from core.settings import read_settings
    from core.settings.store_settings import MigrationSettings
    from storage.migrations import run

    settings = read_settings(MigrationSettings)
    configure_logging(settings)
    _end_when_asked()
    with database_errors():
        revision = run.wait_until_migrated(settings) if wait else run.migrate(settings)
    show({"revision": revision}, as_json=as_json)


def bucket(as_json: Json = False) -> None:
    """Make the bucket and its user, unless they exist. The bucket holds every object."""
    from core.settings import read_settings
    from core.settings.store_settings import BucketSettings
    from storage.buckets import create_bucket

    settings = read_settings(BucketSettings)
    _end_when_asked()
    create_bucket(settings)
    show({"bucket": settings.s3_bucket}, as_json=as_json)


def _end_when_asked() -> None:
    """End at once on SIGTERM, with the code that it has as a signal.

    The first process of a container ends by no signal that it does not handle, and a handler of
    Python's own would wait until a call to the database returns. Therefore a thread waits
    for the signal. The next run does the work that it cuts off.
    """
    signals = {signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    Thread(target=lambda: os._exit(128 + signal.sigwait(signals)), daemon=True).start()
