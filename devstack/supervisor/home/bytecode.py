"""Keeping Python's compiled modules, without which eight processes compile the same code again."""

import os
import sys
from importlib.util import cache_from_source, find_spec
from pathlib import Path

from devstack.supervisor.home.home import Home

# Large, and needed by nearly every process of the stack.
_SAMPLE = "sqlalchemy"


def keep(home: Home) -> None:
    """Make sure that compiled modules are found again at the next start, in the home if need be.

    Some environments forbid to write them beside the sources (PYTHONDONTWRITEBYTECODE, packages
    of another user) and have none there. A start then takes three times as long.
    """
    if sys.pycache_prefix is not None or _is_kept_already():
        return
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(home.bytecode)
    sys.dont_write_bytecode = False
    sys.pycache_prefix = str(home.bytecode)


def _is_kept_already() -> bool:
    spec = find_spec(_SAMPLE)
    if spec is None or spec.origin is None:
        return True
    if Path(cache_from_source(spec.origin)).exists():
        return True
    return not sys.dont_write_bytecode and os.access(Path(spec.origin).parent, os.W_OK)
