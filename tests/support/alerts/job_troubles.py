"""Faults of jobs, workers and maintenance, with the alert that each fault must trigger."""

import os
import secrets
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from devstack.harness.polling import eventually
from devstack.harness.proxy import Proxy
from tests.support.alerts.trouble import Trouble, calling_repeatedly, without_table
from tests.support.alerts.watched_site import Site
from tests.support.http.replies import data, send
from tests.support.stack.maintenance import run_maintenance
from tests.support.stack.signals import list_children

# In the dictionary ``Site.workers``, the worker that runs maintenance tasks has this key.
_MAINTENANCE_WORKER = "request"
_CONVERTER_MODULE = "services.attachments.isolation.child"
_MAX_CRASHES = 3


def _upload(site: Site) -> None:
    with site.client() as client:
        assert send(client, prefer="respond-async").status_code == 202


@contextmanager
def _queue_without_worker(site: Site) -> Iterator[None]:
    with site.workers["media"].stopped():
        _upload(site)
        yield


@contextmanager
def _worker_killed_at_work(site: Site) -> Iterator[None]:
    """Kill a worker during a job, so that another worker finds the job's expired lease."""
    with ExitStack() as faults, site.client() as client:
        faults.enter_context(site.proxies["mail"].misbehaving(Proxy.hang))
        site.join(client)
        _await_attempt(site, "mail")
        faults.enter_context(site.workers["mail"].stopped())
        yield


@contextmanager
def _job_kills_its_process(site: Site) -> Iterator[None]:
    """Kill the process in each attempt at a job, until no attempts are left."""
    media = site.workers["media"]
    with ExitStack() as faults:
        with media.stopped():
            _upload(site)
            faults.enter_context(site.proxies["s3"].misbehaving(Proxy.hang))
        for attempt in range(1, _MAX_CRASHES + 1):
            _await_attempt(site, "media", attempt)
            for pid in media.get_running().children():
                os.kill(pid, signal.SIGKILL)
        failed_job = "SELECT 1 FROM jobs WHERE queue = 'media' AND status = 'failed'"
        eventually(lambda: site.stack.query(failed_job), within=90, what="the job's failure")
        yield


def _await_attempt(site: Site, queue: str, attempt: int = 1) -> None:
    running_job = "SELECT 1 FROM jobs WHERE queue = %s AND status = 'running' AND attempt = %s"
    eventually(
        lambda: site.stack.query(running_job, queue, attempt),
        within=30,
        what=f"attempt {attempt} in the queue {queue}",
    )


@contextmanager
def _converters_killed(site: Site) -> Iterator[None]:
    """Kill the image converters, as the kernel does when memory runs out."""

    def kill_converters(site: Site, client: object) -> None:
        for process in site.workers["media"].get_running().children():
            for pid in list_children(process):
                if _CONVERTER_MODULE in _read_command(pid):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)

    with calling_repeatedly(site, kill_converters):
        yield


def _read_command(pid: int) -> str:
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
    with site.workers[_MAINTENANCE_WORKER].stopped():
        _make_due(site, "credits.verify")
        yield


@contextmanager
def _nothing_purged(site: Site) -> Iterator[None]:
    """Leave an idempotency record in the database for two days after the record expired."""
    with site.workers[_MAINTENANCE_WORKER].stopped():
        with site.client() as client:
            data(send(client, key=secrets.token_hex()))
        site.stack.query("UPDATE idempotency_records SET expires_at = now() - interval '2 days'")
        yield
    run_maintenance(site.stack, "maintenance.purge")


@contextmanager
def _backup_fails(site: Site) -> Iterator[None]:
    """Replace the folder of the backups with a file."""
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
        lambda site: site.workers["mail"].paused(),
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
