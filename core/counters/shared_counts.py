"""The folder in which a worker and the processes of its pool count together.

It is made before anything else is imported: the library of metrics looks for it then.
"""

import atexit
import os
import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

_ADDRESS_VARIABLE = "PRESSROOM_WORKER_METRICS_ADDRESS"
# The library's own.
_FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
_PREFIX = "pressroom-metrics-"


def share_counts() -> None:
    """Let this process and those that it forks count in shared files, if it is to be scraped."""
    if not os.environ.get(_ADDRESS_VARIABLE):
        return
    if "prometheus_client" in sys.modules:
        raise RuntimeError("counts are shared before anything is counted")
    _remove_left_folders()
    folder = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-")
    os.environ[_FOLDER_VARIABLE] = folder
    atexit.register(forget_counts, os.getpid())


def shared_folder() -> Path:
    return Path(os.environ[_FOLDER_VARIABLE])


def forget_counts(process: int | None = None) -> None:
    """Remove the folder, at the end of the process that made it; ``process``: of no other."""
    folder = os.environ.get(_FOLDER_VARIABLE)
    if folder and process in (None, os.getpid()):
        shutil.rmtree(folder, ignore_errors=True)


def _remove_left_folders() -> None:
    """Delete the folders of workers that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        process = folder.name.removeprefix(_PREFIX).partition("-")[0]
        with suppress(OSError):
            is_ours = folder.stat(follow_symlinks=False).st_uid == os.getuid()
            if process.isdigit() and is_ours and not lives(int(process)):
                shutil.rmtree(folder, ignore_errors=True)


def lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
