"""The commands that run the processes of Pressroom in the foreground.

Every ``pressroom`` command imports this module, so the functions of this module import libraries
only when they run.
"""

import os
import signal
from importlib.util import find_spec
from threading import Thread
from typing import Annotated

import typer

from cli.output import Json, print_record
from core.queues import Queue

# Modules from the extra ``devstack``.
_STACK_MODULES = ("aiosmtpd", "psutil")
# A module from the extra ``languages``. Without this extra, the composer of a new stack would fail.
_LANGUAGE_MODULE = "py3langid"

# When the API stops, requests may continue for this many seconds.
API_GRACE_SECONDS = 20

Host = Annotated[str, typer.Option(help="The address to listen on.")]


def register_commands(app: typer.Typer) -> None:
    # Register the commands of the development stack only if it is installed. The container image
    # contains no development stack.
    stack = (up, down, status, reset) if find_spec("devstack") else ()
    for command in (*stack, serve, worker, flower, migrate, bucket):
        app.command()(command)


def up(
    detach: Annotated[
        bool,
        typer.Option(
            "--detach", help="Run the stack in the background, and return when it is ready."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Start the development stack. The stack includes an API, workers, Flower and a sandbox."""
    _require_modules(*_STACK_MODULES, _LANGUAGE_MODULE)
    from devstack.supervisor import commands

    raise typer.Exit(commands.start_stack(detach=detach, as_json=as_json))


def down(as_json: Json = False) -> None:
    """Stop the development stack without deleting data."""
    _require_modules(*_STACK_MODULES)
    from devstack.supervisor import commands

    raise typer.Exit(commands.stop_stack(as_json=as_json))


def status(
    as_shell: Annotated[
        bool,
        typer.Option(
            "--shell", help="Print shell code that sets API, KEY and SANDBOX for the examples."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Show each process of the development stack. The exit code is 3 if no stack is running."""
    _require_modules(*_STACK_MODULES)
    from devstack.supervisor import commands

    if as_shell and as_json:
        raise typer.BadParameter("--shell and --json exclude each other.", param_hint="--shell")
    raise typer.Exit(commands.show_status(as_json=as_json, as_shell=as_shell))


def reset(
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask for confirmation.")] = False,
    as_json: Json = False,
) -> None:
    """Stop the development stack and delete all its data.

    The data includes the database, queues, images, keys and logs.
    """
    _require_modules(*_STACK_MODULES)
    from devstack.supervisor import commands, home_folder

    home = home_folder.find_home()
    if not yes:
        typer.confirm(f"Delete all data in {home.path}?", abort=True, err=True)
    raise typer.Exit(commands.reset_stack(as_json=as_json))


def serve(
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen on.")] = 8000,
    processes: Annotated[int, typer.Option(min=1, help="The number of API processes.")] = 1,
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

    # Check the settings first, because uvicorn would restart a failing API again and again.
    settings = load_settings()
    settings.forwarding_networks()
    with database_errors():
        require_time_limits(settings)
    raise_file_descriptor_limit()
    # After a graceful shutdown, uvicorn sends SIGTERM to itself. The exit code is 0, because the
    # stop was requested. ``os._exit`` saves the seconds that Python would spend on unloading
    # modules.
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
    queue: Annotated[
        list[Queue], typer.Option(help="A queue to serve. Repeat the option for several queues.")
    ],
    concurrency: Annotated[
        int | None,
        typer.Option(
            min=1, help="The number of parallel jobs per queue. Each queue has its own default."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a worker for one or more queues."""
    # REMAP_SIGTERM makes SIGTERM start a soft shutdown of Celery, and must be set before Celery is
    # imported.
    os.environ.setdefault("REMAP_SIGTERM", "SIGQUIT")
    from core.counters.shared_counts import share_counts

    share_counts()
    from cli.connection import database_errors, use_running_stack
    from core.settings.process_settings import load_worker_settings
    from storage.database import require_time_limits
    from workers.main import run_worker
    from workers.serving import IncompatibleQueues, plan_serving

    try:
        serves = plan_serving(queue, concurrency)
    except IncompatibleQueues as error:
        raise typer.BadParameter(str(error), param_hint="--queue") from None
    use_running_stack()
    with database_errors():
        require_time_limits(load_worker_settings(queue))
    run_worker(serves)


def flower(
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen on.")] = 5555,
    host_name: Annotated[
        list[str] | None,
        typer.Option(
            help="Accept only requests with this host name. Repeat the option for several names."
        ),
    ] = None,
    periodic: Annotated[
        bool, typer.Option("--periodic", help="Show maintenance tasks too.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run Flower, a web page that shows workers and tasks. Flower requires a password."""
    from core.settings import read_settings
    from core.settings.store_settings import FlowerSettings
    from workers.flower_server import run_flower

    names = host_name or ()
    run_flower(read_settings(FlowerSettings), host, port, names, shows_periodic=periodic)


def migrate(
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Wait until another process has migrated the database."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Migrate the database to the newest revision.

    The command also lets the application's role use all tables.
    """
    from cli.connection import database_errors
    from core.log_output import configure_logging
    from core.settings import read_settings
    from core.settings.store_settings import MigrationSettings
    from storage.migrations import run

    settings = read_settings(MigrationSettings)
    configure_logging(settings)
    _exit_on_sigterm()
    with database_errors():
        revision = run.wait_until_migrated(settings) if wait else run.migrate(settings)
    print_record({"revision": revision}, as_json=as_json)


def bucket(as_json: Json = False) -> None:
    """Create the bucket and its user, unless they already exist."""
    from core.settings import read_settings
    from core.settings.store_settings import BucketSettings
    from storage.buckets import create_bucket

    settings = read_settings(BucketSettings)
    _exit_on_sigterm()
    create_bucket(settings)
    print_record({"bucket": settings.s3_bucket}, as_json=as_json)


def _require_modules(*modules: str) -> None:
    if not all(map(find_spec, modules)):
        typer.echo(
            "The development stack needs more packages. Install Pressroom with the extras: "
            "'pressroom[devstack,languages]'.",
            err=True,
        )
        raise typer.Exit(2)


def _exit_on_sigterm() -> None:
    """Exit immediately on SIGTERM, with the usual exit code for SIGTERM.

    Without a handler, the first process of a container ignores signals. A thread waits for the
    signal, because a Python signal handler would run only after the current database call.
    """
    signals = {signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    Thread(target=lambda: os._exit(128 + signal.sigwait(signals)), daemon=True).start()
