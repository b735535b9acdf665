"""The supervisor behind `pressroom up`: one thread, one loop, every process its child.

locks → ports → services, then what needs them → ready: run.json and the panel
→ watch and restart → on a signal: stop in order, remove run.json
"""

import os
import time
from contextlib import closing
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
from devstack.supervisor.home import environment, run_file
from devstack.supervisor.home.home_folder import Home, Lock
from devstack.supervisor.home.private_files import read_json_object, write_private
from devstack.supervisor.home.secrets_file import load_or_create
from devstack.supervisor.processes.group import Group
from devstack.supervisor.processes.ports import PortPicker, port_from_setting
from devstack.supervisor.processes.stop_requests import StopRequests
from devstack.supervisor.processes.watcher_client import Watcher

_MAX_START_SECONDS = 120.0
_STARTING_TICK_SECONDS = 0.04
_IDLE_TICK_SECONDS = 1.0


class AlreadyRunningError(Exception):
    """Another supervisor holds the home's lock."""


@dataclass(frozen=True)
class StackPlan:
    """One run, decided before anything is started."""

    home: Home
    ports: programs.Ports
    embedded: EmbeddedServices
    environment: dict[str, str]


def run(home: Home, display: Display) -> None:
    """Run the stack until a signal asks for its end.

    Raises:
        AlreadyRunningError: another supervisor runs on this home.
        StackError: the stack could not start; nothing is left running.
    """
    home.create()
    only = Lock(home.supervisor_lock)
    if not only.acquire():
        raise AlreadyRunningError
    with closing(only), services_lock(home, display.say) as lock:
        only.note(str(os.getpid()))
        home.run_file.unlink(missing_ok=True)
        plan = _plan(home, lock)
        requests = StopRequests()
        requests.install()
        _Supervisor(plan, lock, display, requests).run()


def _plan(home: Home, lock: Lock) -> StackPlan:
    api_port, flower_port = port_from_setting("PORT", 8000), port_from_setting("FLOWER_PORT", 5555)
    if api_port == flower_port:
        raise StackError(f"PORT and FLOWER_PORT are both {api_port}.", exit_code=2)
    own = environment.own_settings()
    secrets = load_or_create(home)
    picker = PortPicker(home.ports_file)
    embedded = embed(home, secrets, picker, lock, own)
    ports = programs.Ports(api_port, flower_port, picker.pick("sandbox"), picker.pick("smtp"))
    picker.keep()
    sandbox_url = f"http://{LOOPBACK}:{ports.sandbox}"
    chosen = {
        **common_settings(secrets, api_url=f"http://{LOOPBACK}:{api_port}"),
        **embedded.environment,
        **programs.mail_settings(ports),
        **sandbox_settings.challenge_settings(sandbox_url, own),
        **sandbox_settings.payment_settings(sandbox_url, own),
        **sandbox_settings.llm_settings(sandbox_url, own),
        **sandbox_settings.stock_photo_settings(sandbox_url, own),
    }
    return StackPlan(home, ports, embedded, environment.for_programs(chosen))


class _Supervisor:
    def __init__(
        self, plan: StackPlan, lock: Lock, display: Display, requests: StopRequests
    ) -> None:
        self._plan = plan
        self._display = display
        self._requests = requests
        self._watcher = Watcher(keep_open=(lock.descriptor,))
        # Ours come first: those that need nothing import while initdb holds up the loop.
        ours = programs.plan(plan.home, plan.environment, plan.ports)
        self._group = Group([*ours, *plan.embedded.programs], self._watcher, display.say)
        self._published_pids: dict[str, int] = {}

    def run(self) -> None:
        try:
            if self._start():
                self._display.ready(self._publish())
            while not self._requests.is_stopping:
                self._group.tick()
                if self._group.pids != self._published_pids:
                    self._publish()
                is_idle = self._group.is_ready
                self._requests.wait(_IDLE_TICK_SECONDS if is_idle else _STARTING_TICK_SECONDS)
        finally:
            self._display.end_progress()
            if self._requests.is_stopping:
                self._display.say("Stopping. Press Ctrl-C again to hurry.")
            self._plan.home.run_file.unlink(missing_ok=True)
            self._group.stop([*programs.STOP_STAGES, SERVICE_STAGE], self._requests.is_hurried)
            self._watcher.close()

    def _start(self) -> bool:
        """Wait until all is ready; False when a signal asks for a stop before that."""
        deadline = time.monotonic() + _MAX_START_SECONDS
        while not self._requests.is_stopping:
            self._group.tick()
            self._display.progress(self._group.children)
            if self._group.is_ready:
                return True
            self._group.check_start()
            if time.monotonic() > deadline:
                raise StackError(
                    f"Not ready after {_MAX_START_SECONDS:.0f} s: {self._group.not_ready()}. "
                    f"Their logs are in {self._plan.home.logs}"
                )
            self._requests.wait(_STARTING_TICK_SECONDS)
        return False

    def _publish(self) -> run_file.Run:
        """Say in run.json what runs now."""
        plan, pids = self._plan, self._group.pids
        home, settings = plan.home, plan.environment
        sandbox_url = f"http://{LOOPBACK}:{plan.ports.sandbox}"
        run = run_file.Run(
            api_url=f"http://{LOOPBACK}:{plan.ports.api}",
            flower_url=f"http://{LOOPBACK}:{plan.ports.flower}",
            flower_user=settings["PRESSROOM_FLOWER_USER"],
            flower_password=settings["PRESSROOM_FLOWER_PASSWORD"],
            sandbox_url=sandbox_url,
            mailbox_url=f"{sandbox_url}/mail",
            database_url=settings["PRESSROOM_DATABASE_URL"],
            redis_url=settings["PRESSROOM_REDIS_URL"],
            s3=run_file.S3Login(
                endpoint=settings["PRESSROOM_S3_ENDPOINT"],
                access_key=settings.get("PRESSROOM_S3_ACCESS_KEY", ""),
                secret_key=settings.get("PRESSROOM_S3_SECRET_KEY", ""),
                bucket=settings.get("PRESSROOM_S3_BUCKET", "pressroom"),
            ),
            demo=run_file.DemoLogin.model_validate(read_json_object(home.demo_file) or {}),
            metrics_token=settings["PRESSROOM_METRICS_TOKEN"],
            pids={**pids, "supervisor": os.getpid()},
            home=home.path,
        )
        self._published_pids = pids
        try:
            write_private(home.run_file, run.model_dump_json(indent=2) + "\n")
        except OSError as error:
            # A full disk is no reason to stop what still runs.
            self._display.say(f"Cannot write {home.run_file}: {error.strerror}")
        return run
