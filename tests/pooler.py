"""PgBouncer between our programs and the tests' Postgres, with the settings of our documents."""

import configparser
import io
import signal
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from shutil import which

import psycopg2
from sqlalchemy import make_url

from devstack import LOOPBACK
from devstack.supervisor.processes.group import Group
from devstack.supervisor.processes.watcher_client import Watcher
from tests.docs.markdown import ROOT, blocks
from tests.embedded import Services, await_ready
from tests.ports import free_port
from tests.prerequisites import pass_over
from tests.replica import RUNS_POSTGRES
from tests.stack import Stack

_NAME = "pgbouncer"
_DOCUMENT = ROOT / "docs" / "operations.md"


@dataclass(frozen=True)
class RunningPooler:
    """Attributes:
    size: the number of connections that it has to the server at most.
    """

    url: str
    size: int
    group: Group

    def restart(self) -> None:
        """Kill it outright, and return when it works again."""
        self.group[_NAME].send(signal.SIGKILL)
        while self.group[_NAME].is_usable:
            self.group.tick()
            time.sleep(0.01)
        await_ready(self.group)


@contextmanager
def running_pooler(services: Services, stack: Stack, *, size: int) -> Iterator[RunningPooler]:
    """A pool before the stack's database. Call it from the main thread, as for the services."""
    program = which(_NAME, path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
    if program is None:
        pass_over("PgBouncer is not installed (Debian's package pgbouncer)")
    url = make_url(stack.environment["PRESSROOM_DATABASE_URL"])
    port = free_port()
    primary = services.group["postgres"].program
    place = stack.home / f"pooler-{port}"
    place.mkdir(mode=0o755)
    logins = place / "userlist.txt"
    logins.write_text(f'"{url.username}" "{url.password}"\n')
    settings = _documented()
    settings["databases"] = {
        str(url.database): f"host={LOOPBACK} port={url.port} dbname={url.database}"
    }
    settings["pgbouncer"] |= {
        "listen_addr": LOOPBACK,
        "listen_port": str(port),
        "unix_socket_dir": "",
        "auth_file": str(logins),
        "default_pool_size": str(size),
    }
    ini = place / "pgbouncer.ini"
    ini.write_text(_written(settings))
    pooled = url.set(port=port).render_as_string(hide_password=False)
    running = replace(
        primary,
        name=_NAME,
        argv=(*primary.argv[: primary.argv.index(RUNS_POSTGRES)], program, str(ini)),
        log=primary.log.with_name(f"pgbouncer-{port}.log"),
        stop_signal=signal.SIGTERM,
        ready=lambda: _answers(pooled),
        prepare=lambda: None,
    )
    watcher = Watcher()
    group = Group([running], watcher, say=lambda _: None)
    try:
        await_ready(group)
        yield RunningPooler(pooled, size, group)
    finally:
        group.stop([[_NAME]])
        watcher.close()


def _documented() -> dict[str, dict[str, str]]:
    """The settings that our documents tell operators to begin with."""
    [text] = [each.text for each in blocks(_DOCUMENT) if "pool_mode" in each.text]
    read = configparser.ConfigParser(interpolation=None)
    read.read_string(text)
    return {name: dict(read[name]) for name in read.sections()}


def _written(settings: dict[str, dict[str, str]]) -> str:
    made = configparser.ConfigParser(interpolation=None)
    made.read_dict(settings)
    text = io.StringIO()
    made.write(text)
    return text.getvalue()


def _answers(url: str) -> bool:
    with suppress(psycopg2.OperationalError), closing(psycopg2.connect(url, connect_timeout=2)):
        return True
    return False
