"""The programs of ours that the stack runs on top of the services."""

import http.client
import sys
from dataclasses import dataclass, replace

from devstack import LOOPBACK
from devstack.sandbox.sandbox_settings import WEBHOOK_PATH
from devstack.supervisor.home.home_folder import Home
from devstack.supervisor.processes.program import Program

# One process for the lanes that wait for other servers, and one for those that compute.
WORKERS = {
    "worker-waiting": ("request", "money", "mail", "upkeep"),
    "worker-computing": ("media", "export", "bulk"),
}

# The order of a stop: first the programs that take requests, last those that keep data.
STOP_STAGES = (
    ("prepare", "api"),
    tuple(WORKERS),
    ("flower", "sandbox"),
)
_NEEDS = frozenset({"valkey", "prepare"})


@dataclass(frozen=True)
class Ports:
    api: int
    flower: int
    sandbox: int
    smtp: int


def mail_settings(ports: Ports) -> dict[str, str]:
    """Settings that send all mail to the sandbox."""
    return {
        "PRESSROOM_MAIL_URL": f"smtp://{LOOPBACK}:{ports.smtp}",
        "PRESSROOM_MAIL_FROM": "Pressroom <news@pressroom.example>",
    }


def plan(home: Home, environment: dict[str, str], ports: Ports) -> list[Program]:
    """Every program of ours, in the order of their start."""

    def program(name: str, *words: str, module: str = "cli.main", **more: str) -> Program:
        # -P: a folder called `cli` in the current directory must not be taken for ours.
        argv = (sys.executable, "-P", "-m", module, *words)
        return Program(name, argv, log=home.log(name), environment={**environment, **more})

    def worker(name: str) -> Program:
        ready_file = home.work / f"{name}.ready"
        lanes = [word for lane in WORKERS[name] for word in ("--lane", lane)]
        return replace(
            program(name, "worker", *lanes, PRESSROOM_READY_FILE=str(ready_file)),
            ready=ready_file.exists,
            prepare=lambda: ready_file.unlink(missing_ok=True),
            needs=_NEEDS,
        )

    prepare = program(
        "prepare", module="devstack.supervisor.prepare", PRESSROOM_HOME=str(home.path)
    )
    api = program("api", "serve", "--host", LOOPBACK, "--port", str(ports.api))
    flower = program("flower", "flower", "--host", LOOPBACK, "--port", str(ports.flower))
    sandbox = program(
        "sandbox",
        *("--port", str(ports.sandbox), "--smtp-port", str(ports.smtp)),
        *("--webhook-url", f"http://{LOOPBACK}:{ports.api}{WEBHOOK_PATH}"),
        module="devstack.sandbox",
    )
    return [
        replace(prepare, once=True, grace=5.0, needs=frozenset({"postgres", "s3"})),
        replace(api, ready=lambda: answers(ports.api, "/readyz"), needs=_NEEDS),
        *map(worker, WORKERS),
        replace(flower, ready=lambda: answers(ports.flower, "/healthcheck"), needs=_NEEDS),
        replace(sandbox, ready=lambda: answers(ports.sandbox, "/healthz"), grace=5.0),
    ]


def answers(port: int, path: str) -> bool:
    """Whether a server on this loopback port answers the path with 200 within a second."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=1.0)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
