"""Starts a stack with a filled database, which later runs can reuse."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg2

from benchmarks.measure import measure_seconds
from benchmarks.scale.filling import fill
from benchmarks.scale.volume import Volume
from core.queues import Queue
from core.settings import Settings
from core.settings.notations import PlanQuota
from devstack.harness.embedded_services import Services, embedded_services
from devstack.harness.opening import open_stack
from devstack.harness.stack import Owner, Stack
from devstack.supervisor.ports import PortPicker
from services.jobs import maintenance
from workers.context import WorkerContext
from workers.serving import plan_serving

METRICS_TOKEN = "metrics-of-a-benchmark"
# Raise the quotas, because the first owner exceeds the quotas of every plan.
_BOUNDS = ",".join(f"{quota}=900000000000" for quota in PlanQuota)
_ENVIRONMENT = {"PRESSROOM_QUOTA_PAID": _BOUNDS, "PRESSROOM_METRICS_TOKEN": METRICS_TOKEN}


@dataclass
class SizedStack:
    """A running stack with a filled database, and the owner of the largest share of rows."""

    stack: Stack
    volume: Volume
    owner: Owner
    # The id of the first owner's largest list.
    list_id: int
    worker: WorkerContext


@contextmanager
def open_services(keep: str | None) -> Iterator[tuple[Services, Path]]:
    """Start the services that all stacks share, and yield them with their data folder.

    Args:
        keep: a data folder to keep after the ``with`` block, or ``None`` for a temporary folder.
    """
    with ExitStack() as opened:
        folder = keep or opened.enter_context(TemporaryDirectory(prefix="pressroom-bench-"))
        home = Path(folder)
        home.mkdir(parents=True, exist_ok=True)
        yield opened.enter_context(embedded_services(home)), home


@contextmanager
def sized_stack(
    services: Services, home: Path, volume: Volume, number: int
) -> Iterator[SizedStack]:
    name = f"scale-{volume.factor:g}".replace(".", "-")
    port = PortPicker(home / f"{name}-ports.json").pick("api")
    with open_stack(services, home, name, number, port) as stack:
        _fill_once(stack, volume)
        with run_stack(stack, volume) as sized:
            yield sized


@contextmanager
def run_stack(stack: Stack, volume: Volume) -> Iterator[SizedStack]:
    """Start all processes of a stack with a filled database.

    Periodic maintenance is postponed, so that no maintenance runs during the measurement.
    """
    _postpone_maintenance(stack)
    # Cancel jobs of an interrupted benchmark, because workers would run these jobs first.
    stack.query(
        "UPDATE jobs SET status = 'cancelled', finished_at = now(), lease_expires_at = NULL"
        " WHERE status IN ('queued', 'running') AND run_at < now()"
    )
    stack.environment |= _ENVIRONMENT
    stack.start_sandbox()
    stack.start_api(PRESSROOM_LOG_LEVEL="warning")
    stack.start_worker("media")
    stack.start_worker(
        "request", "photos", "money", "mail", "webhooks", "maintenance", concurrency=4
    )
    stack.start_worker("bulk", "export", concurrency=1)
    [(user_id, email, list_id)] = stack.query(
        "SELECT user_id, users.email, lists.id FROM lists JOIN users ON users.id = user_id"
        " WHERE slug = 'list-1'"
    )
    assert isinstance(user_id, int)
    assert isinstance(list_id, int)
    owner = Owner(user_id, str(email), stack.create_key(user_id))
    worker = WorkerContext(_settings(stack), plan_serving([Queue.MAINTENANCE]))
    try:
        yield SizedStack(stack, volume, owner, list_id, worker)
    finally:
        worker.resources.close()


def _fill_once(stack: Stack, volume: Volume) -> None:
    """Fill the database, unless the comment on the database shows that an earlier run filled it."""
    [(revision,)] = stack.query("SELECT version_num FROM alembic_version")
    filling = {"factor": volume.factor, "seed": volume.seed, "revision": revision}
    [(comment,)] = stack.query(
        "SELECT shobj_description(oid, 'pg_database') FROM pg_database"
        " WHERE datname = current_database()"
    )
    if comment is not None and json.loads(str(comment)) == filling:
        print(f"{volume.factor:g}×: the database of an earlier run", flush=True)
        return
    [(is_used,)] = stack.query("SELECT EXISTS (SELECT FROM users)")
    if is_used:
        raise RuntimeError(f"{stack.name} was filled otherwise, or not to the end: remove it first")
    print(f"{volume.factor:g}×:", flush=True)
    with _larger_log(stack.owner_url):
        seconds = measure_seconds(lambda: fill(stack.owner_url, volume, stack.settings().keyring))
    [(size,)] = stack.query("SELECT pg_size_pretty(pg_database_size(current_database()))")
    print(f"  filled in {seconds:.0f} s: {size}", flush=True)
    new_comment = json.dumps(filling)
    stack.query(f"COMMENT ON DATABASE \"{stack.name}\" IS '{new_comment}'")


@contextmanager
def _larger_log(url: str) -> Iterator[None]:
    """Raise the maximum size of the write-ahead log, to avoid checkpoints while filling tables."""
    with closing(psycopg2.connect(url)) as connection, connection.cursor() as sql:
        connection.autocommit = True
        sql.execute("ALTER SYSTEM SET max_wal_size = '6GB'")
        sql.execute("SELECT pg_reload_conf()")
        yield
        sql.execute("ALTER SYSTEM RESET max_wal_size")
        sql.execute("SELECT pg_reload_conf()")
        sql.execute("CHECKPOINT")


def _postpone_maintenance(stack: Stack) -> None:
    for kind in maintenance.list_kinds():
        stack.query(
            "INSERT INTO maintenance (name, every_seconds, due_at, send_after)"
            " VALUES (%s, %s, now() + interval '7 days', now() + interval '7 days')"
            " ON CONFLICT (name) DO UPDATE SET every_seconds = excluded.every_seconds,"
            " due_at = excluded.due_at, send_after = excluded.send_after, lease_expires_at = NULL",
            kind.name,
            int(kind.every.total_seconds()),
        )


def _settings(stack: Stack) -> Settings:
    """Return the environment variables that configure the stack, including the sandbox's URLs."""
    named: dict[str, Any] = {
        key.removeprefix("PRESSROOM_").lower(): value
        for key, value in stack.environment.items()
        if key.startswith("PRESSROOM_")
    }
    return Settings.model_validate(named)
