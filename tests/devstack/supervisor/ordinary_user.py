import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

_ID = 65534


@dataclass(frozen=True)
class OrdinaryUser:
    """Somebody without root's powers, and a directory of theirs."""

    directory: Path

    def run_python(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*_become(), _interpreter(), *words],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
            cwd=self.directory,
            env={**os.environ, **_modules(), "HOME": str(self.directory), **variables},
        )


def _become() -> list[str]:
    return ["setpriv", f"--reuid={_ID}", f"--regid={_ID}", "--clear-groups"]


def own(directory: Path) -> OrdinaryUser:
    shutil.chown(directory, _ID, _ID)
    return OrdinaryUser(directory)


def _modules() -> dict[str, str]:
    source = str(Path(__file__).parents[3])
    return {"PYTHONPATH": os.pathsep.join([source, sysconfig.get_paths()["purelib"]])}


def _interpreter() -> str:
    """Ours, or the system's of the same version where ours lies in root's private directory."""
    system = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    for path in (sys.executable, system):
        # Through a shell: the first program after a change of user still starts as root may.
        probe = [*_become(), "sh", "-c", 'exec "$0" -c ""', path]
        if subprocess.run(probe, check=False, capture_output=True).returncode == 0:
            return path
    raise LookupError("no Python that an ordinary user may run")
