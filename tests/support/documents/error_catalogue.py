"""Lists every error that the API can return, with the name of its constant in `core.errors`."""

import importlib
import pkgutil
from collections.abc import Iterator

from core import errors
from core.errors.catalogue import ErrorType


def _list_entries() -> Iterator[tuple[str, ErrorType]]:
    for area in pkgutil.iter_modules(errors.__path__):
        module = importlib.import_module(f"core.errors.{area.name}")
        for name, value in vars(module).items():
            if isinstance(value, ErrorType):
                yield name, value


ENTRIES = tuple(_list_entries())
