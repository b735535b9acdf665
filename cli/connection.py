from collections.abc import Iterator
from contextlib import contextmanager

from core.settings import load_settings
from storage.resources import Resources, open_resources


@contextmanager
def connected() -> Iterator[Resources]:
    """The services that the environment's settings name."""
    resources = open_resources(load_settings(), concurrency=2, name="cli")
    try:
        yield resources
    finally:
        resources.close()
