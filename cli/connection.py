import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import psycopg2
from sqlalchemy.exc import OperationalError

from core.logging import configure_logging
from core.refusals.requests import DATABASE_UNUSABLE
from core.settings import load_settings
from services.events import event_origins
from services.events.event_origins import Credential, CredentialKind, Origin
from storage.resources import Resources, open_resources


def use_running_stack() -> None:
    """Take the settings of the running development stack unless the environment names services."""
    names_services = {"PRESSROOM_DATABASE_URL", "PRESSROOM_DATABASE_URL_FILE"} & os.environ.keys()
    if not names_services and find_spec("devstack") is not None:
        from devstack.supervisor import run_settings
        from devstack.supervisor.home import environment, home_folder

        for name, value in run_settings.settings_of(home_folder.from_environment()).items():
            os.environ.setdefault(name, value)
        os.environ["PATH"] = environment.path_of_programs()


@contextmanager
def connected() -> Iterator[Resources]:
    """The resources of the services that the environment names, else of the running stack."""
    use_running_stack()
    settings = load_settings()
    # Scripts read what a command prints, so the log must not mix with it.
    configure_logging(settings.model_copy(update={"log_level": "error"}))
    event_origins.begin(Origin(credential=Credential(CredentialKind.COMMAND)))
    resources = open_resources(settings, concurrency=2, name="cli")
    try:
        with database_errors():
            yield resources
    finally:
        resources.close()


@contextmanager
def database_errors() -> Iterator[None]:
    """Turn the errors of a database that can't be reached into a sentence."""
    try:
        yield
    except (OperationalError, psycopg2.OperationalError) as error:
        reason = str(getattr(error, "orig", error)).strip()
        raise DATABASE_UNUSABLE(reason=reason) from None
