"""Podman with images, containers and networks of its own, apart from those of this machine."""

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

# Kept from run to run, so that only the first one makes base images.
FOLDER = ROOT / "build" / "containers"
# Podman takes a short path alone here. Each checkout has its own: the state of a killed run in
# another one would spoil this one.
_RUNNING = Path("/run", f"pressroom-containers-{crc32(bytes(ROOT)):08x}")
# Podman's name server for containers keeps its state here, whatever its other folders are.
_NAMES = Path("/run/containers/networks/aardvark-dns")
_INIT = ("catatonit", "/usr/libexec/podman/catatonit", "/usr/lib/podman/catatonit")
_MAX_FILES = 65_536
_MAX_PROCESSES = 2048


class EngineError(Exception):
    """Raised when a command of Podman's fails; the message has its last lines."""


def say(sentence: str) -> None:
    sys.stdout.write(f"{sentence}\n")
    sys.stdout.flush()


def missing() -> str:
    """What keeps Podman from running here, or nothing."""
    if os.geteuid() != 0:
        return "containers are run by root"
    for program in ("podman", "runc", "ip"):
        if shutil.which(program) is None:
            return f"there is no {program}"
    return "" if _init() else "there is no catatonit"


def _init() -> str | None:
    return next((found for each in _INIT if (found := shutil.which(each))), None)


def run(
    words: list[str],
    *,
    timeout: float = 120,
    environment: dict[str, str] | None = None,
    directory: Path | None = None,
) -> str:
    """Run a program and return its output; raises ``EngineError``."""
    done = subprocess.run(
        words,
        check=False,
        capture_output=True,
        text=True,
        timeout=timeout,
        env=environment,
        cwd=directory,
    )
    if done.returncode != 0:
        said = (done.stdout + done.stderr)[-3000:]
        raise EngineError(f"{' '.join(words[:8])} … ended with {done.returncode}:\n{said}")
    return done.stdout


@dataclass(frozen=True)
class Engine:
    """How to call Podman: every call needs the environment."""

    environment: dict[str, str]

    def podman(self, *words: str, timeout: float = 120) -> str:
        return run(["podman", *words], timeout=timeout, environment=self.environment)

    def log(self, container: str) -> str:
        """The last lines of what the container wrote, to either stream."""
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
        """Remove what a run that was killed left, but for the images."""
        remove = ("rm", "--all", "--force", "--time", "5")
        # It fails where a container ends while Podman is about to kill it: then it has ended.
        self.succeeds(*remove)
        self.podman(*remove)
        self.podman("volume", "prune", "--force")
        self.podman("network", "prune", "--force")
        _forget_dead_names()


def _forget_dead_names() -> None:
    """Remove the names of containers that ended without Podman, as when the machine stopped.

    The name server lives as long as any container has a name. It would answer with their addresses.
    """
    try:
        served = psutil.pid_exists(int((_NAMES / "aardvark.pid").read_text()))
    except FileNotFoundError:
        return
    if not served:
        shutil.rmtree(_NAMES)


def open_engine() -> Engine:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for driver in ("overlay", "vfs"):
        engine = _engine(driver)
        if engine.succeeds("info"):
            return engine
    # It says what is wrong.
    engine.podman("info")
    return engine


def _engine(driver: str) -> Engine:
    storage, settings = FOLDER / "storage.conf", FOLDER / "containers.conf"
    storage.write_text(
        f'[storage]\ndriver = "{driver}"\n'
        f'graphroot = "{FOLDER / driver}"\nrunroot = "{_RUNNING / driver}"\n'
    )
    settings.write_text(
        f"[containers]\ndefault_ulimits = {ulimits()}\n"
        f'init_path = "{_init()}"\n'
        '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
        f'tmp_dir = "{_RUNNING / driver / "engine"}"\n'
        f'[network]\nnetwork_backend = "netavark"\n'
        f'network_config_dir = "{FOLDER / driver / "networks"}"\n'
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PRESSROOM_")}
    return Engine(
        {
            **kept,
            "CONTAINERS_CONF": str(settings),
            "CONTAINERS_STORAGE_CONF": str(storage),
            # Its image has a health check, which the newer format has no place for.
            "BUILDAH_FORMAT": "docker",
            # There may be no systemd whose timers run health checks; `Project` runs them.
            "DISABLE_HC_SYSTEMD": "true",
        }
    )


def ulimits() -> list[str]:
    """Limits that a machine grants which forbids to raise any: Podman would set higher ones."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    files = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
    return [f"nofile={files}:{files}", f"nproc={_MAX_PROCESSES}:{_MAX_PROCESSES}"]
