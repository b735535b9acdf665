"""Defines Pressroom's programs, which the stack runs in addition to the embedded services."""

import http.client
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from core.queues import Queue
from core.settings.process_settings import list_settings
from devstack import LOOPBACK, LOOPBACK_HOSTS
from devstack.sandbox.sandbox_settings import STRIPE_KEYS, WEBHOOK_PATH
from devstack.supervisor.child import Program
from devstack.supervisor.environment import restrict_settings
from devstack.supervisor.home_folder import Home

# The queues of each worker. ``worker-waiting`` runs I/O-bound jobs, and ``worker-computing`` runs
# CPU-bound jobs.
_COMPUTING_QUEUES = (Queue.MEDIA, Queue.EXPORT, Queue.BULK)
WORKERS = {
    "worker-waiting": tuple(queue for queue in Queue if queue not in _COMPUTING_QUEUES),
    "worker-computing": _COMPUTING_QUEUES,
}

# The order in which groups of Pressroom's programs are stopped. Programs that accept requests are
# stopped before all other programs.
STOP_STAGES = (("prepare", "api"), tuple(WORKERS), ("flower", "sandbox"))
_NEEDED_PROGRAMS = frozenset({"valkey", "s3", "prepare"})


@dataclass(frozen=True)
class Ports:
    api: int
    flower: int
    sandbox: int
    smtp: int
    # Maps the name of each worker to the port of its metrics.
    workers: Mapping[str, int]


def build_mail_settings(ports: Ports) -> dict[str, str]:
    return {
        "PRESSROOM_MAIL_URL": f"smtp://{LOOPBACK}:{ports.smtp}",
        "PRESSROOM_MAIL_FROM": "Pressroom <news@pressroom.example>",
    }


def plan_programs(
    home: Home, environment: dict[str, str], ports: Ports, *, creates_bucket: bool
) -> list[Program]:
    """Return Pressroom's programs in start order.

    If ``creates_bucket`` is true, ``prepare`` creates the bucket in the user's own object storage.
    """
    program = partial(_build_program, home, environment)

    def worker(name: str) -> Program:
        queues = [word for queue in WORKERS[name] for word in ("--queue", queue)]
        settings = list_settings("worker", WORKERS[name])
        address = f"{LOOPBACK}:{ports.workers[name]}"
        plain = program(name, settings, "worker", *queues, PRESSROOM_WORKER_METRICS_ADDRESS=address)
        return _build_worker(plain, home.work)

    prepare = program(
        "prepare",
        # Only ``prepare`` may change database tables.
        list_settings("serve") | list_settings("migrate") | list_settings("bucket"),
        *(["--bucket"] if creates_bucket else []),
        module="devstack.supervisor.prepare",
        PRESSROOM_HOME=str(home.path),
    )
    api = program("api", list_settings("serve"), *_build_listen_arguments("serve", ports.api))
    names = [word for name in LOOPBACK_HOSTS for word in ("--host-name", name)]
    flower = program(
        "flower", list_settings("flower"), *_build_listen_arguments("flower", ports.flower), *names
    )
    return [
        replace(prepare, runs_once=True, grace_seconds=5.0, needs=frozenset({"postgres"})),
        replace(_add_readiness(api, ports.api, "/readyz"), needs=_NEEDED_PROGRAMS),
        *map(worker, WORKERS),
        replace(_add_readiness(flower, ports.flower, "/healthcheck"), needs=frozenset({"valkey"})),
        _build_sandbox(program, ports),
    ]


def _build_sandbox(program: Callable[..., Program], ports: Ports) -> Program:
    metrics_urls = [
        f"http://{LOOPBACK}:{port}/metrics" for port in (ports.api, *ports.workers.values())
    ]
    plain = program(
        "sandbox",
        STRIPE_KEYS | {"metrics_token", "docs_url"},
        "--port",
        str(ports.sandbox),
        "--smtp-port",
        str(ports.smtp),
        "--webhook-url",
        f"http://{LOOPBACK}:{ports.api}{WEBHOOK_PATH}",
        *(word for url in metrics_urls for word in ("--metrics-url", url)),
        module="devstack.sandbox",
    )
    return replace(_add_readiness(plain, ports.sandbox, "/healthz"), grace_seconds=5.0)


def _build_program(
    home: Home,
    environment: Mapping[str, str],
    name: str,
    settings: Collection[str],
    *words: str,
    module: str = "cli.main",
    **more: str,
) -> Program:
    # The flag -P prevents imports from a folder ``cli`` in the current directory.
    argv = (sys.executable, "-P", "-m", module, *words)
    program_environment = {**restrict_settings(environment, settings), **more}
    return Program(name, argv, log=home.log(name), environment=program_environment)


def _add_readiness(plain: Program, port: int, path: str) -> Program:
    return replace(plain, is_ready=lambda: is_responding(port, path), port=port)


def _build_listen_arguments(command: str, port: int) -> tuple[str, ...]:
    return command, "--host", LOOPBACK, "--port", str(port)


def _build_worker(plain: Program, directory: Path) -> Program:
    ready_file = directory / f"{plain.name}.ready"
    alive_file = directory / f"{plain.name}.alive"
    files = {"PRESSROOM_READY_FILE": str(ready_file), "PRESSROOM_ALIVE_FILE": str(alive_file)}
    return replace(
        plain,
        environment={**plain.environment, **files},
        is_ready=ready_file.exists,
        prepare=lambda: ready_file.unlink(missing_ok=True),
        needs=_NEEDED_PROGRAMS,
    )


def is_responding(port: int, path: str) -> bool:
    """Return whether a loopback server responds to ``path`` with status 200 within a second."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=1.0)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
