"""Programs in JavaScript: their interpreter, and their packages from npm's registry."""

import fcntl
import shutil
import subprocess
from pathlib import Path

from tests.support.prerequisites import pass_over

FOLDER = Path(__file__).parent / "javascript"
_INSTALLED = "node_modules/.package-lock.json"
_INSTALL_SECONDS = 60
_INSTALL = (
    *("ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel", "error"),
    # By itself npm waits for a minute in all before it tries a third time.
    *("--fetch-retries", "1", "--fetch-retry-mintimeout", "1000"),
)


def node(folder: Path = FOLDER, program: str = "the JavaScript client") -> str:
    """The path of Node.js, once the program's packages are there; passes the test over without."""
    found, npm = shutil.which("node"), shutil.which("npm")
    if not found or not npm:
        pass_over(f"{program} needs Node.js and npm")
    lock, installed = (folder / each for each in ("package-lock.json", _INSTALLED))
    with lock.open() as held:
        # Of several processes that run tests, one installs.
        fcntl.flock(held, fcntl.LOCK_EX)
        if not installed.exists() or installed.stat().st_mtime < lock.stat().st_mtime:
            _install(npm, folder, program)
            installed.touch()
    return found


def _install(npm: str, folder: Path, program: str) -> None:
    try:
        subprocess.run(
            [npm, "--prefix", str(folder), *_INSTALL],
            check=True,
            capture_output=True,
            text=True,
            timeout=_INSTALL_SECONDS,
        )
    except subprocess.TimeoutExpired:
        pass_over(f"npm did not fetch the packages of {program} in {_INSTALL_SECONDS} s")
    except subprocess.CalledProcessError as error:
        # The first line is the error's code, such as ENOTFOUND; what follows is a trace.
        first = error.stderr.strip().partition("\n")[0]
        pass_over(f"npm cannot fetch the packages of {program}: {first}")
