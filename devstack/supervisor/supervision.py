"""Supervises the programs of a stack, which ``pressroom up`` starts as child processes.

The supervisor acquires locks, picks ports, and starts the services and then the programs that need
them. When all programs are ready, the supervisor writes ``run.json`` and shows the stack's
addresses. The supervisor restarts each program that ends unexpectedly. On a stop signal, the
supervisor stops all programs in a fixed order and removes ``run.json``.
"""

import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from types import FrameType

from core.settings.given_settings import PREFIX
from devstack import LOOPBACK
from devstack.sandbox import sandbox_settings
from devstack.supervisor import environment, home_folder, programs
from devstack.supervisor.child import Child, ChildState, Program
from devstack.supervisor.display import Display
from devstack.supervisor.embedded import stack
from devstack.supervisor.home_folder import Home, Lock, StackError, load_or_create_secrets
from devstack.supervisor.ports import PortPicker, read_port_setting
from devstack.supervisor.start_progress import StartProgress

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_MAX_START_ATTEMPTS = 3
_STARTING_TICK_SECONDS = 0.04
_IDLE_TICK_SECONDS = 1.0


class StopRequests:
    """Only the main thread may create a ``StopRequests``, and only once."""

    def __init__(self) -> None:
        self.is_stopping = False
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        os.set_blocking(self._write_end, False)
        signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        for number in _STOP_SIGNALS:
            signal.signal(number, self._note_request)
        # Handle SIGCHLD, so that the end of a child wakes up the supervisor.
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)

    def wait(self, timeout: float) -> None:
        """Sleep until a signal arrives, for at most ``timeout`` seconds."""
        select.select([self._read_end], [], [], timeout)
        try:
            while os.read(self._read_end, 512):
                pass
        except BlockingIOError:
            return

    def _note_request(self, _number: int, _frame: FrameType | None) -> None:
        self.is_stopping = True


class Group:
    """``report`` is called with a sentence when a child ends unexpectedly and when it is ready
    again.
    """

    def __init__(self, programs: Iterable[Program], report: Callable[[str], None]) -> None:
        self.children = [Child(program) for program in programs]
        self._by_name = {child.name: child for child in self.children}
        self._report = report

    def __getitem__(self, name: str) -> Child:
        return self._by_name[name]

    @property
    def is_ready(self) -> bool:
        return all(child.is_usable for child in self.children)

    @property
    def pids(self) -> dict[str, int]:
        return {child.name: child.pid for child in self.children if child.pid is not None}

    def tick(self) -> None:
        for child in self.children:
            failures = child.failures
            child.check_end()
            needed = (self._by_name.get(name) for name in child.program.needs)
            if child.is_due and all(each is None or each.is_usable for each in needed):
                child.start()
            if child.failures > failures:
                delay = max(child.restart_at - time.monotonic(), 0)
                self._report(
                    f"{child.name} {child.last_end}. It restarts in {delay:.1f} s. Its log is "
                    f"{child.program.log}."
                )
            if child.check_ready() and child.failures:
                self._report(f"{child.name} is running again (pid {child.pid}).")

    def check_start(self) -> None:
        """Raise ``StackError`` if a program has failed several times without becoming ready, or if
        a program that runs only once has reported an error.
        """
        for child in self.children:
            has_failed_often = child.failures >= _MAX_START_ATTEMPTS and not child.was_ready
            if has_failed_often or child.state is ChildState.FAILED:
                raise StackError(
                    f"{child.name} does not start: it {child.last_end}.\n"
                    f"The end of {child.program.log}:\n{child.program.last_log_lines()}"
                )

    def list_unready(self) -> str:
        return ", ".join(child.name for child in self.children if not child.is_usable)

    def stop(self, stages: Sequence[Sequence[str]]) -> None:
        """Stop the children in the order of ``stages``, and kill children that take too long."""
        for names in stages:
            stopping = [self._by_name[name] for name in names if name in self._by_name]
            for child in stopping:
                child.send_signal(child.program.stop_signal)
            began = time.monotonic()
            while stopping := [child for child in stopping if not child.check_stopped()]:
                for child in stopping:
                    if time.monotonic() - began > child.program.grace_seconds:
                        child.send_signal(signal.SIGKILL)
                time.sleep(0.02)


class AlreadyRunningError(Exception):
    """Another supervisor is running in the same home folder."""


def run_stack(home: Home, display: Display) -> None:
    """Run a stack until a signal requests a stop.

    Raises ``AlreadyRunningError`` if another supervisor is running in the same home folder. If the
    stack can't start, its programs are stopped, and ``StackError`` is raised.
    """
    home.create()
    supervisor_lock = Lock(home.supervisor_lock)
    if not supervisor_lock.acquire():
        raise AlreadyRunningError
    # Commands that find the lock need these files, even while the services of a killed supervisor
    # still hold their lock.
    supervisor_lock.write_text(str(os.getpid()))
    home.run_file.unlink(missing_ok=True)
    # The supervisor's lock is released only at the end of the process, when all services have
    # ended.
    with stack.lock_services(home, display.report) as lock:
        _Supervisor(home, lock, display).run()


class _Supervisor:
    def __init__(self, home: Home, lock: Lock, display: Display) -> None:
        """Determine all ports, settings and programs before any program is started."""
        self._home = home
        self._display = display
        api_port = read_port_setting("PORT", 8000)
        flower_port = read_port_setting("FLOWER_PORT", 5555)
        if api_port == flower_port:
            raise StackError(
                (f"PORT and FLOWER_PORT are both {api_port}. Set different ports."), exit_code=2
            )
        user_settings = environment.read_user_settings()
        secrets = load_or_create_secrets(home)
        picker = PortPicker(home.ports_file)
        services, service_settings = stack.plan_services(home, secrets, picker, lock, user_settings)
        self._ports = programs.Ports(
            api_port,
            flower_port,
            picker.pick("sandbox"),
            picker.pick("smtp"),
            {name: picker.pick(name) for name in programs.WORKERS},
        )
        picker.store_choices()
        self._sandbox_url = f"http://{LOOPBACK}:{self._ports.sandbox}"
        chosen = {
            **stack.build_common_settings(secrets, api_url=f"http://{LOOPBACK}:{self._ports.api}"),
            **service_settings,
            **programs.build_mail_settings(self._ports),
            **sandbox_settings.build_sandbox_settings(self._sandbox_url, user_settings),
        }
        self._environment = environment.build_program_environment(chosen)
        # Start loading Pressroom's programs before the embedded services, to save time. While
        # initdb creates the database, the programs that need no service can already load.
        has_external_storage = "PRESSROOM_S3_ENDPOINT" in user_settings
        pressroom_programs = programs.plan_programs(
            home, self._environment, self._ports, creates_bucket=has_external_storage
        )
        self._requests = StopRequests()
        self._group = Group([*pressroom_programs, *services], display.report)
        self._published_pids: dict[str, int] = {}

    def run(self) -> None:
        try:
            if self._wait_until_ready():
                self._display.show_stack(self._write_run_file())
            while not self._requests.is_stopping:
                self._group.tick()
                if self._group.pids != self._published_pids:
                    self._write_run_file()
                is_idle = self._group.is_ready
                self._requests.wait(_IDLE_TICK_SECONDS if is_idle else _STARTING_TICK_SECONDS)
        finally:
            if self._requests.is_stopping:
                self._display.report("Stopping.")
            self._home.run_file.unlink(missing_ok=True)
            self._group.stop([*programs.STOP_STAGES, stack.SERVICE_STAGE])

    def _wait_until_ready(self) -> bool:
        """Return false if a signal requests a stop before all programs are ready."""
        progress = StartProgress(self._group.children, self._display.report)
        while not self._requests.is_stopping:
            self._group.tick()
            self._display.show_progress(self._group.children)
            if self._group.is_ready:
                return True
            self._group.check_start()
            progress.check()
            self._requests.wait(_STARTING_TICK_SECONDS)
        return False

    def _write_run_file(self) -> home_folder.Run:
        home = self._home
        settings = self._environment
        pids = self._group.pids
        database_url = settings["PRESSROOM_DATABASE_URL"]
        demo = home_folder.read_json_object(home.demo_file) or {}
        run = home_folder.Run(
            api_url=f"http://{LOOPBACK}:{self._ports.api}",
            flower_url=f"http://{LOOPBACK}:{self._ports.flower}",
            flower_user=settings["PRESSROOM_FLOWER_USER"],
            flower_password=settings["PRESSROOM_FLOWER_PASSWORD"],
            sandbox_url=self._sandbox_url,
            mailbox_url=f"{self._sandbox_url}/mail",
            status_url=f"{self._sandbox_url}/status",
            database_url=database_url,
            migration_database_url=settings.get("PRESSROOM_MIGRATION_DATABASE_URL", database_url),
            redis_url=settings["PRESSROOM_REDIS_URL"],
            s3=home_folder.S3Login(
                endpoint=settings["PRESSROOM_S3_ENDPOINT"],
                access_key=settings.get("PRESSROOM_S3_ACCESS_KEY", ""),
                secret_key=settings.get("PRESSROOM_S3_SECRET_KEY", ""),
                bucket=settings.get("PRESSROOM_S3_BUCKET", "pressroom"),
            ),
            demo=home_folder.DemoLogin.model_validate(demo),
            metrics_token=settings["PRESSROOM_METRICS_TOKEN"],
            settings={
                name: value
                for name, value in environment.remove_owner_settings(settings).items()
                if name.startswith(PREFIX)
            },
            pids={**pids, "supervisor": os.getpid()},
            home=home.path,
        )
        self._published_pids = pids
        try:
            home_folder.write_private(home.run_file, run.model_dump_json(indent=2) + "\n")
        except OSError as error:
            # Keep the stack running even if ``run.json`` can't be written, for example because the
            # disk is full.
            self._display.report(f"Cannot write {home.run_file}: {error.strerror}")
        return run
