"""Jobs, the workers that do them, and maintenance."""

import os
import secrets
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from devstack.harness.polling import eventually
from devstack.harness.proxy import Proxy
from tests.support.alerts.trouble import Trouble, called, without_table
from tests.support.alerts.watched_site import Site
from tests.support.http.replies import data, send
from tests.support.stack.maintenance import run_maintenance
from tests.support.stack.signals import list_children

# The one that does maintenance, too.
_OTHERS = "request"
_CONVERTER = "services.attachments.isolation.child"
_MAX_CRASHES = 3


def _upload(site: Site) -> None:
    with site.client() as client:
        assert send(client, prefer="respond-async").status_code == 202


@contextmanager
def _queue_without_worker(site: Site) -> Iterator[None]:
    with site.workers["media"].away():
        _upload(site)
        yield


@contextmanager
def _worker_killed_at_work(site: Site) -> Iterator[None]:
    """Another worker sweeps what it held."""
    with ExitStack() as mended, site.client() as client:
        mended.enter_context(site.proxies["mail"].misbehaving(Proxy.hang))
        site.join(client)
        _await_attempt(site, "mail")
        mended.enter_context(site.workers["mail"].away())
        yield


@contextmanager
def _job_kills_its_process(site: Site) -> Iterator[None]:
    """Each time that it is tried, until it is given up."""
    media = site.workers["media"]
    with ExitStack() as mended:
        with media.away():
            _upload(site)
            mended.enter_context(site.proxies["s3"].misbehaving(Proxy.hang))
        for attempt in range(1, _MAX_CRASHES + 1):
            _await_attempt(site, "media", attempt)
            for pid in media.started.children():
                os.kill(pid, signal.SIGKILL)
        yield


def _await_attempt(site: Site, queue: str, attempt: int = 1) -> None:
    running = "SELECT 1 FROM jobs WHERE queue = %s AND status = 'running' AND attempt = %s"
    eventually(
        lambda: site.stack.query(running, queue, attempt),
        within=30,
        what=f"attempt {attempt} in the queue {queue}",
    )


@contextmanager
def _converters_killed(site: Site) -> Iterator[None]:
    """As by a kernel that is out of memory."""

    def kill(site: Site, client: object) -> None:
        for process in site.workers["media"].started.children():
            for pid in list_children(process):
                if _CONVERTER in _command(pid):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)

    with called(site, kill):
        yield


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


@contextmanager
def _maintenance_fails(site: Site) -> Iterator[None]:
    with without_table("credit_checkpoints")(site):
        _make_due(site, "credits.verify")
        yield
    run_maintenance(site.stack, "credits.verify")


@contextmanager
def _maintenance_without_worker(site: Site) -> Iterator[None]:
    with site.workers[_OTHERS].away():
        _make_due(site, "credits.verify")
        yield


@contextmanager
def _nothing_purged(site: Site) -> Iterator[None]:
    """Since a record of a call expired, days have gone by."""
    with site.workers[_OTHERS].away():
        with site.client() as client:
            data(send(client, key=secrets.token_hex()))
        site.stack.query("UPDATE idempotency_records SET expires_at = now() - interval '2 days'")
        yield
    run_maintenance(site.stack, "maintenance.purge")


@contextmanager
def _backup_fails(site: Site) -> Iterator[None]:
    """The place of the backups is no folder."""
    site.backups.rmdir()
    site.backups.touch()
    site.stack.query("INSERT INTO departures (kind, user_id) VALUES ('erased', 1)")
    _make_due(site, "backup.journal")
    try:
        yield
    finally:
        site.backups.unlink()
        site.backups.mkdir()
        _make_due(site, "backup.journal")


def _make_due(site: Site, maintenance: str) -> None:
    site.stack.query(
        "UPDATE maintenance SET due_at = now(), send_after = now() WHERE name = %s", maintenance
    )


JOB_TROUBLES = (
    Trouble(
        "no worker in a queue", _queue_without_worker, "PressroomQueueBehind", {"queue": "media"}
    ),
    Trouble(
        "worker hung",
        lambda site: site.workers["mail"].hung(),
        "PressroomQueueStalled",
        {"queue": "mail"},
    ),
    Trouble(
        "worker killed at work", _worker_killed_at_work, "PressroomLeasesLost", {"queue": "mail"}
    ),
    Trouble(
        "table of mails missing",
        without_table("mailed_links"),
        "PressroomJobsFail",
        {"queue": "mail", "code": "job.internal_error"},
        calls=Site.join,
    ),
    Trouble(
        "job kills its process",
        _job_kills_its_process,
        "PressroomJobsFail",
        {"queue": "media", "code": "job.worker_lost"},
    ),
    Trouble(
        "converters killed",
        _converters_killed,
        "PressroomConvertersKilled",
        calls=lambda _, client: send(client, prefer="wait=5"),
    ),
    Trouble(
        "maintenance fails",
        _maintenance_fails,
        "PressroomMaintenanceFails",
        {"maintenance": "credits.verify"},
    ),
    Trouble(
        "no worker of maintenance",
        _maintenance_without_worker,
        "PressroomMaintenanceLate",
        {"maintenance": "credits.verify"},
    ),
    Trouble(
        "nothing purged", _nothing_purged, "PressroomRowsOverdue", {"table": "idempotency_records"}
    ),
    Trouble("backup fails", _backup_fails, "PressroomBackupOverdue"),
)
