"""Connects a command to the servers of a deployment or of the running development stack."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import psycopg2
import typer
from sqlalchemy.exc import OperationalError

from core.errors.requests import DATABASE_UNUSABLE
from core.log_output import configure_logging
from core.process.garbage_collection import end_start
from core.settings import load_settings
from core.settings.given_settings import PREFIX
from services import event_origins
from services.event_origins import Credential, CredentialKind, Origin
from storage.resources import Resources, open_resources

MISCONFIGURED = 2


def use_running_stack() -> None:
    """Use the settings of the running development stack unless the environment names a database."""
    has_database = {"PRESSROOM_DATABASE_URL", "PRESSROOM_DATABASE_URL_FILE"} & os.environ.keys()
    if has_database or find_spec("devstack") is None:
        return
    from devstack.supervisor import environment, home_folder

    home = home_folder.find_home()
    settings = home_folder.read_stack_settings(home)
    # Ignore PRESSROOM_HOME, because it only selects the folder of the stack.
    has_settings = any(name.startswith(PREFIX) and name != "PRESSROOM_HOME" for name in os.environ)
    if not settings and not has_settings:
        typer.echo(
            f"No stack runs on {home.path}, and no settings name services elsewhere.\n"
            "Change to the folder where the stack was started, or name its home in PRESSROOM_HOME."
            "\n`pressroom up` starts a stack.",
            err=True,
        )
        raise typer.Exit(MISCONFIGURED)
    for name, value in settings.items():
        os.environ.setdefault(name, value)
    os.environ["PATH"] = environment.build_path()


@contextmanager
def open_command_resources() -> Iterator[Resources]:
    use_running_stack()
    settings = load_settings()
    # Log only errors, because other log entries would disturb scripts that read the output.
    configure_logging(settings.model_copy(update={"log_level": "error"}))
    event_origins.set_origin(Origin(credential=Credential(CredentialKind.COMMAND)))
    end_start()
    resources = open_resources(settings, concurrency=2, name="cli")
    try:
        with database_errors():
            yield resources
    finally:
        resources.close()


@contextmanager
def database_errors() -> Iterator[None]:
    try:
        yield
    except (OperationalError, psycopg2.OperationalError) as error:
        reason = str(getattr(error, "orig", error)).strip()
        raise DATABASE_UNUSABLE(reason=reason) from None
