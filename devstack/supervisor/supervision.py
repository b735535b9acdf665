"""The supervisor behind `pressroom up`: one thread, one loop, every process its child.

locks → ports → services, then what needs them → ready: run.json and the panel
→ watch and restart → on a signal: stop in order, remove run.json
"""

import os
import time

from core.settings.given_settings import PREFIX
from devstack import LOOPBACK
from devstack.sandbox import sandbox_settings
from devstack.supervisor import programs
from devstack.supervisor.display import Display
from devstack.supervisor.embedded.stack import (
    SERVICE_STAGE,
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
    # Nothing lets go of the first one but the end of this process: who waits for it to stop the
    # stack waits for that too.
    with services_lock(home, display.say) as lock:
        only.note(str(os.getpid()))
        home.run_file.unlink(missing_ok=True)
        _Supervisor(home, lock, display).run()


class _Supervisor:
    def __init__(self, home: Home, lock: Lock, display: Display) -> None:
        """Decide all of the run, before anything is started."""
        self._home = home
        self._display = display
        api, flower = port_from_setting("PORT", 8000), port_from_setting("FLOWER_PORT", 5555)
        if api == flower:
            raise StackError(f"PORT and FLOWER_PORT are both {api}.", exit_code=2)
        own, secrets = environment.own_settings(), load_or_create(home)
        picker = PortPicker(home.ports_file)
        services, service_settings = embed(home, secrets, picker, lock, own)
        self._ports = programs.Ports(
            api,
            flower,
            picker.pick("sandbox"),
            picker.pick("smtp"),
            {name: picker.pick(name) for name in programs.WORKERS},
        )
        picker.keep()
        self._sandbox_url = f"http://{LOOPBACK}:{self._ports.sandbox}"
        chosen = {
            **common_settings(secrets, api_url=f"http://{LOOPBACK}:{self._ports.api}"),
            **service_settings,
            **programs.mail_settings(self._ports),
            **sandbox_settings.chosen_settings(self._sandbox_url, own),
        }
        self._environment = environment.for_programs(chosen)
        # Ours come first: those that need nothing import while initdb holds up the loop.
        ours = programs.plan(home, self._environment, self._ports)
        self._requests = StopRequests()
        self._watcher = Watcher(keep_open=(lock.descriptor,))
        self._group = Group([*ours, *services], self._watcher, display.say)
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
            self._home.run_file.unlink(missing_ok=True)
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
                    f"Their logs are in {self._home.logs}"
                )
            self._requests.wait(_STARTING_TICK_SECONDS)
        return False

    def _publish(self) -> run_file.Run:
        """Say in run.json what runs now."""
        home, settings, pids = self._home, self._environment, self._group.pids
        run = run_file.Run(
            api_url=f"http://{LOOPBACK}:{self._ports.api}",
            flower_url=f"http://{LOOPBACK}:{self._ports.flower}",
            flower_user=settings["PRESSROOM_FLOWER_USER"],
            flower_password=settings["PRESSROOM_FLOWER_PASSWORD"],
            sandbox_url=self._sandbox_url,
            mailbox_url=f"{self._sandbox_url}/mail",
            status_url=f"{self._sandbox_url}/status",
            database_url=settings["PRESSROOM_DATABASE_URL"],
            migration_database_url=settings.get(
                "PRESSROOM_MIGRATION_DATABASE_URL", settings["PRESSROOM_DATABASE_URL"]
            ),
            redis_url=settings["PRESSROOM_REDIS_URL"],
            s3=run_file.S3Login(
                endpoint=settings["PRESSROOM_S3_ENDPOINT"],
                access_key=settings.get("PRESSROOM_S3_ACCESS_KEY", ""),
                secret_key=settings.get("PRESSROOM_S3_SECRET_KEY", ""),
                bucket=settings.get("PRESSROOM_S3_BUCKET", "pressroom"),
            ),
            demo=run_file.DemoLogin.model_validate(read_json_object(home.demo_file) or {}),
            metrics_token=settings["PRESSROOM_METRICS_TOKEN"],
            settings={
                name: value
                for name, value in environment.without_owners(settings).items()
                if name.startswith(PREFIX)
            },
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
