"""Manages the home folder of a stack, which contains data, secrets, logs and locks."""

import base64
import dataclasses
import fcntl
import json
import os
import secrets
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from pydantic import BaseModel, ValidationError

# The name prefix of incomplete files.
UNFINISHED_PREFIX = ".unfinished-"
# The maximum time in seconds for stopping the embedded services. The S3 server takes 2.4 seconds to
# stop.
MAX_STOP_SECONDS = 20.0


class StackError(Exception):
    """An error that prevents a stack from starting or running, with a message for the user.

    Attributes:
        exit_code: the exit code of the command: 2 for invalid settings, 1 for other errors.
    """

    def __init__(self, message: str, *, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def write_private(path: Path, text: str) -> None:
    """Replace a file atomically, and sync it to the disk."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=UNFINISHED_PREFIX)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_private_json(path: Path, value: object) -> None:
    write_private(path, json.dumps(value, indent=2) + "\n")


def read_json_object(path: Path) -> dict[str, object] | None:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return value if isinstance(value, dict) else None


class Home:
    """The home folder of one stack, with the paths of its files. ``path`` is absolute."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.postgres = path / "postgres"
        self.unfinished_postgres = path / "postgres.new"
        # The password file exists only while initdb is running.
        self.postgres_password = path / "postgres.password"
        self.valkey = path / "valkey"
        self.s3 = path / "s3"
        self.s3_logins = path / "s3-logins.json"
        self.logs = path / "logs"
        # The folder for files that are needed only while the stack runs, such as the workers'
        # readiness files.
        self.work = path / "work"
        self.run_file = path / "run.json"
        self.secrets_file = path / "secrets.json"
        self.ports_file = path / "ports.json"
        self.demo_file = path / "demo.json"
        self.sample_photo = path / "sample.jpg"
        self.supervisor_lock = path / "supervisor.lock"
        self.services_lock = path / "services.lock"

    @property
    def all_paths(self) -> tuple[Path, ...]:
        """Return the paths of all files and folders in the home folder, except locks."""
        folders = (self.postgres, self.unfinished_postgres, self.valkey, self.s3, self.work)
        files = (self.run_file, self.secrets_file, self.ports_file, self.demo_file)
        more = (self.postgres_password, self.s3_logins, self.sample_photo)
        return (*folders, *files, *more, *self.path.glob(f"{UNFINISHED_PREFIX}*"), self.logs)

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def create(self) -> None:
        """Create the folders in the home folder, readable only by their owner."""
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
                f"Cannot write to the stack's folder {self.path}: {error.strerror}. Set "
                "PRESSROOM_HOME to a writable folder with free disk space.",
                exit_code=2,
            ) from error


def find_home() -> Home:
    """Return the home folder ``PRESSROOM_HOME``, or ``.pressroom`` in the current directory."""
    path = os.environ.get("PRESSROOM_HOME") or ".pressroom"
    return Home(Path(path).expanduser().resolve())


class Lock:
    """A file lock (``flock``).

    Forked processes inherit the lock. The kernel releases the lock when all processes that hold it
    have ended.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.descriptor = -1

    def acquire(self, *, wait_seconds: float = 0.0) -> bool:
        """Return whether this process has acquired the lock within ``wait_seconds``."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + wait_seconds
        while not _try_lock(descriptor):
            if time.monotonic() >= deadline:
                os.close(descriptor)
                return False
            time.sleep(0.05)
        self.descriptor = descriptor
        return True

    def write_text(self, text: str) -> None:
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, text.encode(), 0)

    def close(self) -> None:
        os.close(self.descriptor)


def _try_lock(descriptor: int) -> bool:
    with suppress(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def find_supervisor_pid(home: Home) -> int | None:
    try:
        file = home.supervisor_lock.open("r+")
    except FileNotFoundError:
        return None
    with file:
        text = "" if _try_lock(file.fileno()) else file.read()
        return int(text) if text else None


_generate_password = partial(secrets.token_urlsafe, 24)
_generate_access_key = partial(secrets.token_hex, 10)


def _generate_key_ring() -> str:
    """Generate a random key as ``<id>:<base64url of 32 random bytes>``."""
    key = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode().rstrip("=")
    return f"k{secrets.token_hex(3)}:{key}"


@dataclass(frozen=True)
class Secrets:
    """Without the encryption keys, encrypted images can't be decrypted."""

    # The password of the database role that owns the tables.
    postgres_password: str = field(default_factory=_generate_password)
    postgres_app_password: str = field(default_factory=_generate_password)
    valkey_admin_password: str = field(default_factory=_generate_password)
    valkey_password: str = field(default_factory=_generate_password)
    s3_admin_access_key: str = field(default_factory=_generate_access_key)
    s3_admin_secret_key: str = field(default_factory=_generate_password)
    s3_access_key: str = field(default_factory=_generate_access_key)
    s3_secret_key: str = field(default_factory=_generate_password)
    s3_internal_key: str = field(default_factory=_generate_password)
    secret_keys: str = field(default_factory=_generate_key_ring)
    encryption_keys: str = field(default_factory=_generate_key_ring)
    metrics_token: str = field(default_factory=_generate_password)
    flower_user: str = "pressroom"
    flower_password: str = field(default_factory=_generate_password)
    demo_password: str = field(default_factory=_generate_password)


def load_or_create_secrets(home: Home) -> Secrets:
    stored_secrets = read_json_object(home.secrets_file)
    if stored_secrets is None and home.secrets_file.exists():
        raise StackError(
            f"{home.secrets_file} is damaged. Restore it from a copy, or run `pressroom reset` to "
            "delete all data of the stack."
        )
    names = {each.name for each in dataclasses.fields(Secrets)}
    chosen = Secrets(**{k: str(v) for k, v in (stored_secrets or {}).items() if k in names})
    all_secrets = {**(stored_secrets or {}), **dataclasses.asdict(chosen)}
    if all_secrets != stored_secrets:
        write_private_json(home.secrets_file, all_secrets)
    return chosen


class S3Login(BaseModel):
    endpoint: str
    access_key: str
    secret_key: str
    bucket: str


class DemoLogin(BaseModel):
    email: str
    password: str
    api_key: str
    user_id: int
    list_id: int
    list_slug: str
    # The link works only in the first 30 minutes of the stack.
    login_link: str | None = None


class Run(BaseModel):
    """The description of a running stack in ``run.json``."""

    api_url: str
    flower_url: str
    flower_user: str
    flower_password: str
    sandbox_url: str
    mailbox_url: str
    status_url: str
    database_url: str
    # The URL for connecting to the database as the owner of the tables.
    migration_database_url: str
    redis_url: str
    s3: S3Login
    demo: DemoLogin
    metrics_token: str
    # The settings of the stack's programs, which commands such as ``pressroom lists`` use too.
    settings: dict[str, str]
    pids: dict[str, int]
    home: Path

    @property
    def sample_photo(self) -> Path:
        return Home(self.home).sample_photo


def read_run(home: Home) -> Run | None:
    try:
        return Run.model_validate_json(home.run_file.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def read_stack_settings(home: Home) -> dict[str, str]:
    run = read_run(home)
    return run.settings if run else {}
