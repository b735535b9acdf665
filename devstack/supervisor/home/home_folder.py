"""The folder that keeps a stack's data, secrets and logs between runs, and its two locks."""

import fcntl
import os
import time
from pathlib import Path

from devstack.supervisor.errors import StackError
from devstack.supervisor.home.private_files import UNFINISHED

# How long a stop may take. S3 alone takes 2.4 seconds.
MAX_STOP_SECONDS = 20.0


class Home:
    """Where everything of one stack lives; `path` is absolute."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.postgres = path / "postgres"
        self.unfinished_postgres = path / "postgres.new"
        # There only while initdb reads it.
        self.postgres_password = path / "postgres.password"
        self.valkey = path / "valkey"
        self.s3 = path / "s3"
        self.s3_logins = path / "s3-logins.json"
        self.logs = path / "logs"
        # Files that mean nothing after a stop, such as the workers' readiness files.
        self.work = path / "work"
        self.run_file = path / "run.json"
        self.secrets_file = path / "secrets.json"
        self.ports_file = path / "ports.json"
        self.demo_file = path / "demo.json"
        self.sample_photo = path / "sample.jpg"
        self.supervisor_lock = path / "supervisor.lock"
        self.services_lock = path / "services.lock"

    @property
    def everything(self) -> tuple[Path, ...]:
        """All that the stack keeps in its home but its locks, and nothing that others put there."""
        folders = (self.postgres, self.unfinished_postgres, self.valkey, self.s3, self.work)
        files = (self.run_file, self.secrets_file, self.ports_file, self.demo_file)
        more = (self.postgres_password, self.s3_logins, self.sample_photo)
        return (*folders, *files, *more, *self.path.glob(f"{UNFINISHED}*"), self.logs)

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def create(self) -> None:
        """Make the folders, readable by their owner only; raise StackError if that fails."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.path.chmod(0o700)
            for directory in (self.logs, self.work):
                directory.mkdir(mode=0o700, exist_ok=True)
            probe = self.work / "probe"
            probe.write_bytes(b"\0" * 65536)
            probe.unlink()
        except OSError as error:
            raise StackError(
                f"Cannot write to the stack's home {self.path}: {error.strerror}. "
                "Point PRESSROOM_HOME to a directory of yours on a disk with room.",
                exit_code=2,
            ) from error


def from_environment() -> Home:
    """The home that PRESSROOM_HOME names, or `.pressroom` in the current directory."""
    named = os.environ.get("PRESSROOM_HOME") or ".pressroom"
    return Home(Path(named).expanduser().resolve())


class Lock:
    """An flock on a file. It ends with the last process that inherited it, however that died."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.descriptor = -1

    def acquire(self, *, wait: float = 0.0) -> bool:
        """Try for `wait` seconds; True when this process now holds the lock."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + wait
        while not _locked(descriptor):
            if time.monotonic() >= deadline:
                os.close(descriptor)
                return False
            time.sleep(0.05)
        self.descriptor = descriptor
        return True

    def note(self, text: str) -> None:
        """Write into the file who holds the lock."""
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, text.encode(), 0)

    def close(self) -> None:
        os.close(self.descriptor)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def supervisor_pid(home: Home) -> int | None:
    """The pid of the supervisor that runs on this home now, or None when none does."""
    try:
        file = home.supervisor_lock.open("r+")
    except FileNotFoundError:
        return None
    with file:
        text = "" if _locked(file.fileno()) else file.read()
        return int(text) if text else None
