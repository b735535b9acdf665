"""Tests that removing a temporary folder spares the file systems that are mounted in the folder."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.containers.engine import find_missing_program, run, run_isolated
from tests.support.containers.folders import temporary_folder
from tests.support.prerequisites import skip_or_fail


@pytest.fixture(autouse=True)
def parent(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, so that a failed test leaves no mount behind.

    If a part of a copy of the file system is unmounted, the part is unmounted here too.
    """
    if reason := find_missing_program():
        skip_or_fail(reason)
    run(["mount", "-t", "tmpfs", "tmpfs", str(tmp_path)])
    try:
        run(["mount", "--make-shared", str(tmp_path)])
        yield tmp_path
    finally:
        run(["umount", "--recursive", "--lazy", str(tmp_path)])


def test_removal_spares_mounted_folder_of_same_file_system(parent: Path) -> None:
    original = parent / "original"
    original.mkdir()
    (original / "marker").touch()
    with temporary_folder(parent) as folder:
        (folder / "in use").mkdir()
        run(["mount", "--bind", str(original), str(folder / "in use")])
        assert (folder / "in use" / "marker").exists()
    assert not folder.exists()
    assert (original / "marker").exists()


def test_removal_spares_nested_file_systems(parent: Path) -> None:
    nested = parent / "original" / "nested"
    nested.mkdir(parents=True)
    run(["mount", "-t", "tmpfs", "tmpfs", str(nested)])
    (nested / "marker").touch()
    with temporary_folder(parent) as folder:
        (folder / "mounted").mkdir()
        run(["mount", "--rbind", str(parent / "original"), str(folder / "mounted")])
        assert (folder / "mounted" / "nested" / "marker").exists()
    assert not folder.exists()
    assert (nested / "marker").exists()


def test_program_that_exceeds_its_time_limit_leaves_no_mount_and_no_process(parent: Path) -> None:
    mounted = parent / "mounted"
    mounted.mkdir()
    child = f"(for _ in $(seq 100); do touch {parent}/alive; sleep 0.1; done) &"
    script = f"{child} mount -t tmpfs tmpfs {mounted} && touch {parent}/started && wait"
    with pytest.raises(subprocess.TimeoutExpired):
        run_isolated(["sh", "-c", script], timeout=3)
    assert (parent / "started").exists()
    assert not mounted.is_mount()
    (parent / "alive").unlink()
    time.sleep(0.5)
    assert not (parent / "alive").exists()
