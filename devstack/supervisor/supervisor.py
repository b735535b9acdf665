"""The supervisor behind `pressroom up`: one thread, one loop, every process its child.

locks → ports → services, then what needs them → ready: run.json and the panel
→ watch and restart → on a signal: stop in order, remove run.json
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from devstack import LOOPBACK
from devstack.sandbox import sandbox_settings
from devstack.supervisor import programs
from devstack.supervisor.display import Display
from devstack.supervisor.embedded.stack import (
    SERVICE_STAGE,
    EmbeddedServices,
    common_settings,
    embed,
    services_lock,
)
from devstack.supervisor.errors import StackError
from devstack.supervisor.home import environment, run_file, schema_fingerprint
from devstack.supervisor.home.home import Home, Lock
from devstack.supervisor.home.private_files import read_json_object
from devstack.supervisor.home.secrets_file import Secrets, load_or_create
from devstack.supervisor.processes.group import Group
from devstack.supervisor.processes.ports import PortPicker, from_setting
from devstack.supervisor.processes.signals import StopRequests
from devstack.supervisor.processes.watcher_client import Watcher

_START_TIMEOUT = 120.0
_STARTING_TICK = 0.04
_IDLE_TICK = 1.0


class AlreadyRunningError(Exception):
    """Another supervisor holds the home's lock."""


@dataclass(frozen=True)
class StackPlan:
    """One run, decided before anything is started."""

    home: Home
    secrets: Secrets
    ports: programs.Ports
    embedded: EmbeddedServices
    environment: dict[str, str]

    def group(self, watcher: Watcher, display: Display) -> Group:
        own_database = environment.own_settings().get("PRESSROOM_DATABASE_URL")
        database = own_database or "embedded"
        has_data = own_database is not None or self.home.postgres.exists()
        ours = programs.plan(
            self.home,
            self.environment,
            self.ports,
            database=database,
            is_migrated=has_data and schema_fingerprint.is_current(self.home, database),
        )
        # What imports for a second starts before initdb holds up the loop; Postgres is last.
        early = [each for each in ours if not each.needs]
        late = [each for each in ours if each.needs]
        *others, postgres = self.embedded.programs or (None,)
        first = [each for each in others if each is not None]
        last = [postgres] if postgres is not None else []
        return Group([*first, *early, *last, *late], watcher, display.say)


def run(home: Home, display: Display) -> None:
    """Run the stack until a signal asks for its end.

    Raises:
        AlreadyRunningError: another supervisor runs on this home.
        StackError: it could not start; nothing is left running.
    """
    home.create()
    with _only_supervisor(home), services_lock(home, display.say) as lock:
        plan = _decide(home, lock)
        requests = StopRequests()
        requests.install()
        _Supervisor(plan, lock, display, requests).run()


@contextmanager
def _only_supervisor(home: Home) -> Iterator[None]:
    lock = Lock(home.supervisor_lock)
    if not lock.acquire():
        raise AlreadyRunningError
    try:
        lock.note(str(os.getpid()))
        run_file.remove(home)
        yield
    finally:
        lock.release()


def _decide(home: Home, lock: Lock) -> StackPlan:
    api_port, flower_port = from_setting("PORT", 8000), from_setting("FLOWER_PORT", 5555)
    if api_port == flower_port:
        raise StackError(f"PORT and FLOWER_PORT are both {api_port}.", exit_code=2)
    secrets = load_or_create(home)
    picker = PortPicker(home.ports_file)
    embedded = embed(home, secrets, picker, lock, environment.own_settings())
    ports = programs.Ports(api_port, flower_port, picker.pick("sandbox"), picker.pick("smtp"))
    picker.keep()
    common = common_settings(secrets, api_url=f"http://{LOOPBACK}:{api_port}")
    sandbox_url, own = f"http://{LOOPBACK}:{ports.sandbox}", environment.own_settings()
    sandbox = {
        **programs.mail_settings(ports),
        **sandbox_settings.challenge_settings(sandbox_url, own),
        **sandbox_settings.payment_settings(sandbox_url, own),
        **sandbox_settings.llm_settings(sandbox_url, own),
        **sandbox_settings.stock_photo_settings(sandbox_url, own),
    }
    settings = environment.for_programs({**common, **embedded.environment, **sandbox})
    return StackPlan(home, secrets, ports, embedded, settings)


class _Supervisor:
    def __init__(
        self, plan: StackPlan, lock: Lock, display: Display, requests: StopRequests
    ) -> None:
        self._plan = plan
        self._display = display
        self._requests = requests
        self._watcher = Watcher(keep_open=(lock.descriptor,))
        self._group = plan.group(self._watcher, display)
        self._told: dict[str, int] = {}

    def run(self) -> None:
        try:
            if self._start():
                self._display.ready(self._publish())
                self._watch()
        finally:
            self._stop()

    def _start(self) -> bool:
        """Wait until all is ready; False when somebody asked for a stop meanwhile."""
        deadline = time.monotonic() + _START_TIMEOUT
        while not self._requests.is_stopping:
            self._group.tick()
            self._display.progress(self._group.children)
            if self._group.is_ready:
                return True
            self._group.check_start()
            if time.monotonic() > deadline:
                raise StackError(
                    f"Not ready after {_START_TIMEOUT:.0f} s: {self._group.not_ready()}. "
                    f"Their logs are in {self._plan.home.logs}"
                )
            self._requests.wait(_STARTING_TICK)
        return False

    def _watch(self) -> None:
        while not self._requests.is_stopping:
            self._group.tick()
            if self._group.pids != self._told:
                self._publish()
            self._requests.wait(_IDLE_TICK if self._group.is_ready else _STARTING_TICK)

    def _stop(self) -> None:
        self._display.end_progress()
        if self._requests.is_stopping:
            self._display.say("Stopping; once more to hurry.")
        run_file.remove(self._plan.home)
        self._group.stop([*programs.stages(), SERVICE_STAGE], self._requests.is_hurried)
        self._watcher.close()

    def _publish(self) -> run_file.Run:
        self._told = self._group.pids
        run = describe(self._plan, {**self._told, "supervisor": os.getpid()})
        try:
            run_file.write(self._plan.home, run)
        except OSError as error:
            # A full disk is no reason to take down what still runs.
            self._display.say(f"Cannot write {self._plan.home.run_file}: {error.strerror}")
        return run


def describe(plan: StackPlan, pids: dict[str, int]) -> run_file.Run:
    """What run.json says about this run."""
    settings, ports = plan.environment, plan.ports
    return run_file.Run(
        api_url=f"http://{LOOPBACK}:{ports.api}",
        flower_url=f"http://{LOOPBACK}:{ports.flower}",
        flower_user=settings["PRESSROOM_FLOWER_USER"],
        flower_password=settings["PRESSROOM_FLOWER_PASSWORD"],
        sandbox_url=f"http://{LOOPBACK}:{ports.sandbox}",
        mailbox_url=f"http://{LOOPBACK}:{ports.sandbox}/mail",
        database_url=settings["PRESSROOM_DATABASE_URL"],
        redis_url=settings["PRESSROOM_REDIS_URL"],
        s3=run_file.S3Login(
            endpoint=settings["PRESSROOM_S3_ENDPOINT"],
            access_key=settings.get("PRESSROOM_S3_ACCESS_KEY", ""),
            secret_key=settings.get("PRESSROOM_S3_SECRET_KEY", ""),
            bucket=settings.get("PRESSROOM_S3_BUCKET", "pressroom"),
        ),
        demo=run_file.DemoLogin.model_validate(read_json_object(plan.home.demo_file) or {}),
        metrics_token=settings["PRESSROOM_METRICS_TOKEN"],
        pids=pids,
        home=plan.home.path,
    )
