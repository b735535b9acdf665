"""The programs of ours that the stack runs on top of the services."""

import http.client
import sys
from collections.abc import Callable
from dataclasses import dataclass

from devstack import LOOPBACK
from devstack.sandbox.sandbox_settings import WEBHOOK_PATH
from devstack.supervisor.home.home import Home
from devstack.supervisor.home.schema_fingerprint import DATABASE_NAME_VARIABLE
from devstack.supervisor.processes.program import Program

LANES = ("io", "media", "bulk")
_SERVICES = frozenset({"postgres", "valkey"})


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


def stages() -> tuple[tuple[str, ...], ...]:
    """The order of a stop: who takes requests first, who keeps data last."""
    workers = tuple(f"worker-{lane}" for lane in LANES)
    return (("prepare", "api"), ("beat", *workers), ("flower", "sandbox"))


def plan(
    home: Home, environment: dict[str, str], ports: Ports, *, database: str, is_migrated: bool
) -> list[Program]:
    """Every program of ours, those that the rest waits for first.

    Args:
        is_migrated: the tables are known to be there, so nobody waits for `prepare`.
    """
    needs = _SERVICES if is_migrated else _SERVICES | {"prepare"}

    def ours(name: str, *words: str, ready: Callable[[], bool]) -> Program:
        return Program(
            name=name,
            argv=_module("cli.main", *words),
            log=home.log(name),
            environment=environment,
            ready=ready,
            needs=needs,
        )

    api = ("serve", "--host", LOOPBACK, "--port", str(ports.api))
    flower = ("flower", "--host", LOOPBACK, "--port", str(ports.flower))
    return [
        _prepare(home, environment, database),
        ours("api", *api, ready=lambda: answers(ports.api, "/readyz")),
        *(_worker(home, environment, lane, needs) for lane in LANES),
        ours("beat", "beat", ready=lambda: True),
        ours("flower", *flower, ready=lambda: answers(ports.flower, "/healthcheck")),
        _sandbox(home, environment, ports),
    ]


def _prepare(home: Home, environment: dict[str, str], database: str) -> Program:
    own = {"PRESSROOM_HOME": str(home.path), DATABASE_NAME_VARIABLE: database}
    return Program(
        name="prepare",
        argv=_module("devstack.supervisor.prepare"),
        log=home.log("prepare"),
        environment={**environment, **own},
        once=True,
        grace=5.0,
    )


def _worker(home: Home, environment: dict[str, str], lane: str, needs: frozenset[str]) -> Program:
    name = f"worker-{lane}"
    mark = home.work / f"{name}.ready"
    return Program(
        name=name,
        argv=_module("cli.main", "worker", "--lane", lane),
        log=home.log(name),
        environment={**environment, "PRESSROOM_READY_FILE": str(mark)},
        ready=mark.exists,
        prepare=lambda: mark.unlink(missing_ok=True),
        needs=needs,
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
    # -P: a directory called `cli` where the user happens to be must not be taken for ours.
    return (sys.executable, "-P", "-m", name, *words)


def answers(port: int, path: str) -> bool:
    """Whether a server on this loopback port answers the path with 200 within a second."""
    link = http.client.HTTPConnection(LOOPBACK, port, timeout=1.0)
    try:
        link.request("GET", path)
        return link.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        link.close()
