"""Makes Pressroom's modules, the installed packages and the Python program readable for every user.

Tests run Pressroom as an ordinary user, who may not be able to read the original files. A folder
that every user can read isn't copied. For a folder that only root can open, ``open_checkout``
creates another folder with hard links to the files, which takes half a second for a virtual
environment of one gigabyte.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

_SOURCE = Path(__file__).parents[3]
ORDINARY_ID = 65534
_VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
_READABLE, _EXECUTABLE = 0o444, 0o111


@dataclass(frozen=True)
class Checkout:
    """Paths that every user of this machine can read.

    Attributes:
        source: the folder that contains Pressroom's modules.
        packages: the site-packages of the virtual environment.
        python: the Python program.
        libraries: the folder with the shared library of a copied Python, or None if Python isn't
            copied.
    """

    source: Path
    packages: Path
    python: Path
    libraries: Path | None = None


def as_ordinary_user(*words: str) -> list[str]:
    """Return a command line with which root can run a command as a user without privileges."""
    return ["setpriv", f"--reuid={ORDINARY_ID}", f"--regid={ORDINARY_ID}", "--clear-groups", *words]


def open_checkout(room: Path) -> Checkout:
    """Make Pressroom's modules, the installed packages and Python readable for every user."""
    source, environment = _SOURCE, Path(sys.prefix)
    packages = Path(sysconfig.get_paths()["purelib"])
    if not _can_read(source / "devstack" / "__main__.py"):
        source = _copy_modules(room / "modules")
    if not _can_read(packages / "psutil" / "__init__.py"):
        copied = _copy_tree(environment, room / "environment")
        packages = copied / packages.relative_to(environment)
        environment = copied
    for python in (environment / "bin" / "python", Path("/usr/bin") / _VERSION):
        if _can_run(python):
            return Checkout(source, packages, python)
    installation = _copy_python(room / "python")
    python = installation / "bin" / _VERSION
    return Checkout(source, packages, python, installation / "lib")


def _copy_modules(target: Path) -> Path:
    for init in _SOURCE.glob("*/__init__.py"):
        if init.parent.name not in {"tests", "benchmarks"}:
            _copy_tree(init.parent, target / init.parent.name)
    _make_folder_readable(target)
    return target


def _copy_python(target: Path) -> Path:
    base = Path(sys.base_prefix)
    modules = Path("lib") / _VERSION
    unneeded = {str(base / modules): {"site-packages", "test"}}
    _copy_tree(base / modules, target / modules, without=unneeded)
    for library in (base / "lib").glob("libpython3*"):
        _copy_file(str(library), str(target / "lib" / library.name))
    (target / "bin").mkdir()
    _copy_file(str((base / "bin" / _VERSION).resolve()), str(target / "bin" / _VERSION))
    for folder in (target, target / "lib", target / "bin"):
        _make_folder_readable(folder)
    return target


def _copy_tree(source: Path, target: Path, *, without: dict[str, set[str]] | None = None) -> Path:
    """Copy a folder so that every user can read the copy."""
    ignored_names = without or {}

    def ignore(folder: str, _: list[str]) -> set[str]:
        return ignored_names.get(folder, set())

    shutil.copytree(source, target, symlinks=True, ignore=ignore, copy_function=_copy_file)
    for folder, _, _ in os.walk(target):
        _make_folder_readable(Path(folder))
    return target


def _make_folder_readable(folder: Path) -> None:
    folder.chmod(0o755)


def _copy_file(source: str, target: str) -> str:
    """Create a hard link to a file that every user can read, or a readable copy of another file."""
    mode = Path(source).stat().st_mode
    required_mode = _READABLE | (_EXECUTABLE if mode & 0o100 else 0)
    if mode & required_mode == required_mode:
        try:
            os.link(source, target)
        except OSError:  # The target is on another disk.
            pass
        else:
            return target
    shutil.copyfile(source, target)
    Path(target).chmod(0o755 if mode & 0o100 else 0o644)
    return target


def _can_read(path: Path) -> bool:
    return _succeeds("test", "-r", str(path))


def _can_run(python: Path) -> bool:
    # Let a shell that runs as the ordinary user start Python. If `setpriv` started Python directly,
    # the start would succeed even if only root may run Python.
    return _succeeds("sh", "-c", 'exec "$0" -c ""', str(python))


def _succeeds(*words: str) -> bool:
    process = subprocess.run(as_ordinary_user(*words), check=False, capture_output=True)
    return process.returncode == 0
