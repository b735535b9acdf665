from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import OperationalError

from core.errors import unavailable
from core.settings import load_settings
from storage.resources import Resources, open_resources


@contextmanager
def connected() -> Iterator[Resources]:
    """The services that the environment's settings name."""
    resources = open_resources(load_settings(), concurrency=2, name="cli")
    try:
        with database_errors():
            yield resources
    finally:
        resources.close()


@contextmanager
def database_errors() -> Iterator[None]:
    """A database that can't be used is said in a sentence, not in a traceback."""
    try:
        yield
    except OperationalError as error:
        reason = str(error.orig).strip()
        raise unavailable("service.unavailable", f"The database is not usable: {reason}") from None
