"""Temporary folders in which programs may mount file systems."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

import psutil

from tests.support.containers.engine import run


@contextmanager
def temporary_folder(parent: Path) -> Iterator[Path]:
    """Create a folder in ``parent``, and remove the folder at the end."""
    folder = Path(mkdtemp(dir=parent))
    try:
        yield folder
    finally:
        remove_folder(folder)


def remove_folder(folder: Path) -> None:
    """Delete a folder with its contents, except the files of mounted file systems."""
    points = [partition.mountpoint for partition in psutil.disk_partitions(all=True)]
    mounts = [point for point in points if Path(point).is_relative_to(folder.resolve())]
    # Without ``--make-private``, unmounting a copy can also unmount the original.
    for mount in mounts:
        run(["mount", "--make-private", mount])
    # A lazy unmount works even if a process still uses the file system.
    for mount in reversed(mounts):
        run(["umount", "--lazy", mount])
    run(["rm", "--recursive", "--one-file-system", str(folder)])
