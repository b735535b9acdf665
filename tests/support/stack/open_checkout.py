"""Our modules, their packages and a Python where every user of this machine can read them.

They are used where they are. What lies in a folder that only root may enter is laid into a new one
instead: by hard links, which cost half a second for a virtual environment of a gigabyte.
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
    """Where the parts are.

    Attributes:
        packages: the site-packages of the virtual environment.
        libraries: where a copied Python finds its shared library; None for one in its own place.
    """

    source: Path
    packages: Path
    python: Path
    libraries: Path | None = None


def as_ordinary_user(*words: str) -> list[str]:
    """A command as root gives it, for a user without any of root's powers."""
    return ["setpriv", f"--reuid={ORDINARY_ID}", f"--regid={ORDINARY_ID}", "--clear-groups", *words]


def open_checkout(room: Path) -> Checkout:
    """This checkout, with copies in `room` of the parts that are closed to other users."""
    source, environment = _SOURCE, Path(sys.prefix)
    packages = Path(sysconfig.get_paths()["purelib"])
    if not _can_read(source / "devstack" / "__main__.py"):
        source = _lay_modules(room / "modules")
    if not _can_read(packages / "psutil" / "__init__.py"):
        copied = _lay(environment, room / "environment")
        packages = copied / packages.relative_to(environment)
        environment = copied
    for python in (environment / "bin" / "python", Path("/usr/bin") / _VERSION):
        if _can_run(python):
            return Checkout(source, packages, python)
    installation = _lay_python(room / "python")
    python = installation / "bin" / _VERSION
    return Checkout(source, packages, python, installation / "lib")


def _lay_modules(target: Path) -> Path:
    for init in _SOURCE.glob("*/__init__.py"):
        if init.parent.name not in {"tests", "benchmarks"}:
            _lay(init.parent, target / init.parent.name)
    (target / "tests").mkdir()
    for name in ("__init__.py", "embedded.py", "ports.py"):
        _lay_file(str(_SOURCE / "tests" / name), str(target / "tests" / name))
    _open_folder(target / "tests")
    _open_folder(target)
    return target


def _lay_python(target: Path) -> Path:
    base, modules = Path(sys.base_prefix), Path("lib") / _VERSION
    own = {str(base / modules): {"site-packages", "test"}}
    _lay(base / modules, target / modules, without=own)
    for library in (base / "lib").glob("libpython3*"):
        _lay_file(str(library), str(target / "lib" / library.name))
    (target / "bin").mkdir()
    _lay_file(str((base / "bin" / _VERSION).resolve()), str(target / "bin" / _VERSION))
    for folder in (target, target / "lib", target / "bin"):
        _open_folder(folder)
    return target


def _lay(source: Path, target: Path, *, without: dict[str, set[str]] | None = None) -> Path:
    """The tree, readable by every user."""
    left_out = without or {}

    def ignored(folder: str, _: list[str]) -> set[str]:
        return left_out.get(folder, set())

    shutil.copytree(source, target, symlinks=True, ignore=ignored, copy_function=_lay_file)
    for folder, _, _ in os.walk(target):
        _open_folder(Path(folder))
    return target


def _open_folder(folder: Path) -> None:
    folder.chmod(0o755)


def _lay_file(source: str, target: str) -> str:
    """A link to a file that every user may read already, a copy of any other."""
    mode = Path(source).stat().st_mode
    needed = _READABLE | (_EXECUTABLE if mode & 0o100 else 0)
    if mode & needed == needed:
        try:
            os.link(source, target)
        except OSError:  # another disk
            pass
        else:
            return target
    shutil.copyfile(source, target)
    Path(target).chmod(0o755 if mode & 0o100 else 0o644)
    return target


def _can_read(path: Path) -> bool:
    return _succeeds("test", "-r", str(path))


def _can_run(python: Path) -> bool:
    # Through a shell: root may still start the first program after a change of user.
    return _succeeds("sh", "-c", 'exec "$0" -c ""', str(python))


def _succeeds(*words: str) -> bool:
    tried = subprocess.run(as_ordinary_user(*words), check=False, capture_output=True)
    return tried.returncode == 0
