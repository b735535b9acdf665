"""The programs of ours that the stack runs on top of the services."""

import http.client
import sys
from dataclasses import dataclass

from devstack import LOOPBACK
from devstack.sandbox.sandbox_settings import WEBHOOK_PATH
from devstack.supervisor.home.home import Home
from devstack.supervisor.processes.program import Program

LANES = ("io", "media", "bulk")

# The order of a stop: first the programs that take requests, last those that keep data.
STOP_STAGES = (
    ("prepare", "api"),
    ("beat", *(f"worker-{lane}" for lane in LANES)),
    ("flower", "sandbox"),
)
_NEEDS = frozenset({"postgres", "valkey", "prepare"})


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
    return [
        Program(
            name="prepare",
            argv=_module("devstack.supervisor.prepare"),
            log=home.log("prepare"),
            environment={**environment, "PRESSROOM_HOME": str(home.path)},
            once=True,
            grace=5.0,
        ),
        Program(
            name="api",
            argv=_module("cli.main", "serve", "--host", LOOPBACK, "--port", str(ports.api)),
            log=home.log("api"),
            environment=environment,
            ready=lambda: answers(ports.api, "/readyz"),
            needs=_NEEDS,
        ),
        *(_worker(home, environment, lane) for lane in LANES),
        Program(
            name="beat",
            argv=_module("cli.main", "beat"),
            log=home.log("beat"),
            environment=environment,
            needs=_NEEDS,
        ),
        Program(
            name="flower",
            argv=_module("cli.main", "flower", "--host", LOOPBACK, "--port", str(ports.flower)),
            log=home.log("flower"),
            environment=environment,
            ready=lambda: answers(ports.flower, "/healthcheck"),
            needs=_NEEDS,
        ),
        _sandbox(home, environment, ports),
    ]


def _worker(home: Home, environment: dict[str, str], lane: str) -> Program:
    name = f"worker-{lane}"
    ready_file = home.work / f"{name}.ready"
    return Program(
        name=name,
        argv=_module("cli.main", "worker", "--lane", lane),
        log=home.log(name),
        environment={**environment, "PRESSROOM_READY_FILE": str(ready_file)},
        ready=ready_file.exists,
        prepare=lambda: ready_file.unlink(missing_ok=True),
        needs=_NEEDS,
    )


def _sandbox(home: Home, environment: dict[str, str], ports: Ports) -> Program:
    words = ("--port", str(ports.sandbox), "--smtp-port", str(ports.smtp))
    webhook = ("--webhook-url", f"http://{LOOPBACK}:{ports.api}{WEBHOOK_PATH}")
    return Program(
        name="sandbox",
        argv=_module("devstack.sandbox", *words, *webhook),
        log=home.log("sandbox"),
        environment=environment,
        ready=lambda: answers(ports.sandbox, "/healthz"),
        grace=5.0,
    )


def _module(name: str, *words: str) -> tuple[str, ...]:
    # -P: a folder called `cli` in the current directory must not be taken for ours.
    return (sys.executable, "-P", "-m", name, *words)


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
