"""The folder in which a worker and its pool processes store their metrics.

The worker must create the metrics folder before it imports ``prometheus_client``, which reads the
folder's path on import.
"""

import atexit
import os
import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

_ADDRESS_VARIABLE = "PRESSROOM_WORKER_METRICS_ADDRESS"
# The environment variable from which ``prometheus_client`` reads the path of the metrics folder.
_FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
_PREFIX = "pressroom-metrics-"


def share_counts() -> None:
    """Make this process and its forked processes store their metrics in a shared folder.

    If the setting ``worker_metrics_address`` is missing, each process keeps its metrics in memory.
    """
    if not os.environ.get(_ADDRESS_VARIABLE):
        return
    if "prometheus_client" in sys.modules:
        raise RuntimeError("counts are shared before anything is counted")
    _remove_stale_folders()
    folder = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-")
    os.environ[_FOLDER_VARIABLE] = folder
    atexit.register(remove_shared_folder, os.getpid())


def shared_folder() -> Path:
    return Path(os.environ[_FOLDER_VARIABLE])


def remove_shared_folder(process: int | None = None) -> None:
    """Remove the folder of the worker's metrics.

    Only ``process`` removes the folder, because forked processes inherit the exit handler. ``None``
    stands for any process.
    """
    folder = os.environ.get(_FOLDER_VARIABLE)
    if folder and process in (None, os.getpid()):
        shutil.rmtree(folder, ignore_errors=True)


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _remove_stale_folders() -> None:
    """Delete the metrics folders of workers that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        process = folder.name.removeprefix(_PREFIX).partition("-")[0]
        with suppress(OSError):
            is_ours = folder.stat(follow_symlinks=False).st_uid == os.getuid()
            if process.isdigit() and is_ours and not is_running(int(process)):
                shutil.rmtree(folder, ignore_errors=True)
