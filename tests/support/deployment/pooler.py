"""PgBouncer in front of a stack's database, with the settings that docs/day-two.md recommends."""

import configparser
import io
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from shutil import which

from sqlalchemy import make_url

from devstack import LOOPBACK
from devstack.harness.embedded_services import Services, await_ready, kill_and_await
from devstack.harness.free_ports import free_port
from devstack.harness.stack import Stack
from devstack.supervisor.supervision import Group
from tests.support.documents.markdown import ROOT, blocks
from tests.support.prerequisites import skip_or_fail
from tests.support.stack.replica import RUNS_POSTGRES, answers_postgres

_NAME = "pgbouncer"
_DOCUMENT = ROOT / "docs" / "day-two.md"


@dataclass(frozen=True)
class RunningPooler:
    url: str
    size: int
    group: Group

    def restart(self) -> None:
        kill_and_await(self.group, _NAME)


@contextmanager
def running_pooler(services: Services, stack: Stack, *, size: int) -> Iterator[RunningPooler]:
    """Run PgBouncer in front of the database of the stack.

    Tests must call this in the main thread, because Linux kills PgBouncer when the thread that
    started it ends.
    """
    program = which(_NAME, path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
    if program is None:
        skip_or_fail("PgBouncer is not installed (Debian's package pgbouncer)")
    url = make_url(stack.environment["PRESSROOM_DATABASE_URL"])
    port = free_port()
    primary = services.group["postgres"].program
    folder = stack.home / f"pooler-{port}"
    folder.mkdir(mode=0o755)
    logins = folder / "userlist.txt"
    logins.write_text(f'"{url.username}" "{url.password}"\n')
    settings = _read_documented_settings()
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
    ini = folder / "pgbouncer.ini"
    ini.write_text(_format_settings(settings))
    pooled = url.set(port=port).render_as_string(hide_password=False)
    running = replace(
        primary,
        name=_NAME,
        argv=(*primary.argv[: primary.argv.index(RUNS_POSTGRES)], program, str(ini)),
        log=primary.log.with_name(f"pgbouncer-{port}.log"),
        stop_signal=signal.SIGTERM,
        is_ready=lambda: answers_postgres(pooled),
        prepare=lambda: None,
    )
    group = Group([running], report=lambda _: None)
    try:
        await_ready(group)
        yield RunningPooler(pooled, size, group)
    finally:
        group.stop([[_NAME]])


def _read_documented_settings() -> dict[str, dict[str, str]]:
    """Return the settings that docs/day-two.md recommends for PgBouncer."""
    [text] = [each.text for each in blocks(_DOCUMENT) if "pool_mode" in each.text]
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(text)
    return {name: dict(parser[name]) for name in parser.sections()}


def _format_settings(settings: dict[str, dict[str, str]]) -> str:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_dict(settings)
    text = io.StringIO()
    parser.write(text)
    return text.getvalue()
