"""Runs Podman with its own images, containers and networks, separate from those of the machine."""

import os
import resource
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import psutil

from tests.support.deployment.files import ROOT

# The folder with Podman's images. Test runs keep Podman's images, so that only the first test run
# builds the base images.
FOLDER = ROOT / "build" / "containers"
# The path of Podman's run folder is short, because Podman rejects long paths. Each checkout of the
# project has its own run folder, so that the files of a killed test run don't affect tests in other
# checkouts.
_RUN_FOLDER = Path("/run", f"pressroom-containers-{crc32(bytes(ROOT)):08x}")
# Podman's name server for containers always keeps its state in this folder.
_NAME_SERVER_FOLDER = Path("/run/containers/networks/aardvark-dns")
_INIT_PROGRAMS = ("catatonit", "/usr/libexec/podman/catatonit", "/usr/lib/podman/catatonit")
_MAX_FILES = 65_536
_MAX_PROCESSES = 2048


class EngineError(Exception):
    """Raised if Podman or another program fails. The text ends with the program's last output."""


def print_line(sentence: str) -> None:
    sys.stdout.write(f"{sentence}\n")
    sys.stdout.flush()


def find_missing_program() -> str:
    """Return why Podman can't run here, or an empty text if it can."""
    if os.geteuid() != 0:
        return "containers are run by root"
    for program in ("podman", "runc", "ip"):
        if shutil.which(program) is None:
            return f"there is no {program}"
    return "" if _find_init() else "there is no catatonit"


def _find_init() -> str | None:
    return next((path for each in _INIT_PROGRAMS if (path := shutil.which(each))), None)


def run(
    words: list[str],
    *,
    timeout: float = 120,
    environment: dict[str, str] | None = None,
    directory: Path | None = None,
) -> str:
    """Run a program and return its output. Raise ``EngineError`` if the program fails."""
    process = subprocess.run(
        words,
        check=False,
        capture_output=True,
        text=True,
        timeout=timeout,
        env=environment,
        cwd=directory,
    )
    if process.returncode != 0:
        output = (process.stdout + process.stderr)[-3000:]
        raise EngineError(f"{' '.join(words[:8])} … ended with {process.returncode}:\n{output}")
    return process.stdout


def run_isolated(words: list[str], *, timeout: float) -> None:
    """Run a program that mounts file systems, such as debootstrap.

    The mounts are invisible to other processes. The mounts and all child processes end with the
    program, and also after the time limit.
    """
    run(["unshare", "--mount", "--pid", "--fork", "--kill-child", *words], timeout=timeout)


@dataclass(frozen=True)
class Engine:
    environment: dict[str, str]

    def podman(self, *words: str, timeout: float = 120) -> str:
        return run(["podman", *words], timeout=timeout, environment=self.environment)

    def log(self, container: str) -> str:
        words = ["podman", "logs", "--tail", "60", container]
        return subprocess.run(
            words,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.environment,
        ).stdout

    def succeeds(self, *words: str, timeout: float = 120) -> bool:
        try:
            self.podman(*words, timeout=timeout)
        except (EngineError, subprocess.TimeoutExpired):
            return False
        return True

    def clear(self) -> None:
        remove = ("rm", "--all", "--force", "--time", "5")
        # Call ``podman rm`` twice, because the first call fails if a container ends just before
        # Podman kills the container.
        self.succeeds(*remove)
        self.podman(*remove)
        self.podman("volume", "prune", "--force")
        self.podman("network", "prune", "--force")
        _forget_dead_names()


def _forget_dead_names() -> None:
    """Delete the host names of old containers if Podman's name server isn't running.

    After a power failure, for example, the files of the name server still contain the host names of
    old containers. A new name server would return the addresses of the old containers in addition
    to those of the new containers.
    """
    try:
        is_running = psutil.pid_exists(int((_NAME_SERVER_FOLDER / "aardvark.pid").read_text()))
    except FileNotFoundError:
        return
    if not is_running:
        shutil.rmtree(_NAME_SERVER_FOLDER)


def open_engine() -> Engine:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for driver in ("overlay", "vfs"):
        engine = _engine(driver)
        if engine.succeeds("info"):
            return engine
    # Podman works neither with the storage driver ``overlay`` nor with ``vfs``. Run ``podman info``
    # again to raise an exception that contains Podman's error message.
    engine.podman("info")
    return engine


def _engine(driver: str) -> Engine:
    storage = FOLDER / "storage.conf"
    settings = FOLDER / "containers.conf"
    storage.write_text(
        f'[storage]\ndriver = "{driver}"\n'
        f'graphroot = "{FOLDER / driver}"\nrunroot = "{_RUN_FOLDER / driver}"\n'
    )
    settings.write_text(
        f"[containers]\ndefault_ulimits = {ulimits()}\n"
        f'init_path = "{_find_init()}"\n'
        '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
        f'tmp_dir = "{_RUN_FOLDER / driver / "engine"}"\n'
        f'[network]\nnetwork_backend = "netavark"\n'
        f'network_config_dir = "{FOLDER / driver / "networks"}"\n'
    )
    variables = {
        name: value for name, value in os.environ.items() if not name.startswith("PRESSROOM_")
    }
    return Engine(
        {
            **variables,
            "CONTAINERS_CONF": str(settings),
            "CONTAINERS_STORAGE_CONF": str(storage),
            # Our image has a health check, which only Docker's image format supports.
            "BUILDAH_FORMAT": "docker",
            # The machine may lack systemd, whose timers run health checks. `Project` runs them.
            "DISABLE_HC_SYSTEMD": "true",
        }
    )


def ulimits() -> list[str]:
    """Return resource limits that work on machines where a process can't raise its limits.

    Podman can't set its default limits if they exceed the limits of the calling process.
    """
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    files = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
    return [f"nofile={files}:{files}", f"nproc={_MAX_PROCESSES}:{_MAX_PROCESSES}"]
