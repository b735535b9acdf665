"""Finds Node.js, and installs the npm packages that JavaScript programs of the tests need."""

import fcntl
import shutil
import subprocess
from pathlib import Path

from tests.support.prerequisites import skip_or_fail

JAVASCRIPT_FOLDER = Path(__file__).parent / "javascript"
_INSTALLED = "node_modules/.package-lock.json"
_INSTALL = (
    *("ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel", "error"),
    # By default, npm waits for five minutes for each response, and for a minute before its third
    # attempt.
    *("--fetch-timeout", "10000", "--fetch-retries", "1", "--fetch-retry-mintimeout", "1000"),
)


def find_node(folder: Path = JAVASCRIPT_FOLDER, program: str = "the JavaScript client") -> str:
    """Install the packages of a program, and return the path of Node.js."""
    node_path = shutil.which("node")
    npm_path = shutil.which("npm")
    if not node_path or not npm_path:
        skip_or_fail(f"{program} needs Node.js and npm")
    lock_file = folder / "package-lock.json"
    installed = folder / _INSTALLED
    with lock_file.open() as open_lock_file:
        # Only one of the processes that run tests installs the packages.
        fcntl.flock(open_lock_file, fcntl.LOCK_EX)
        if not installed.exists() or installed.stat().st_mtime < lock_file.stat().st_mtime:
            _install(npm_path, folder, program)
            installed.touch()
    return node_path


def _install(npm: str, folder: Path, program: str) -> None:
    try:
        subprocess.run(
            [npm, "--prefix", str(folder), *_INSTALL],
            check=True,
            capture_output=True,
            text=True,
        )
    except subprocess.CalledProcessError as error:
        # The first line of npm's output contains an error code, such as ENOTFOUND. The lines after
        # the first line are a stack trace.
        first = error.stderr.strip().partition("\n")[0]
        skip_or_fail(f"npm cannot fetch the packages of {program}: {first}")
