"""A stack on a database of one size, filled now or by an earlier run."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg2

from benchmarks.measure import seconds_of
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
# An owner has hundreds of times what a plan gives, and all of it is counted.
_BOUNDS = ",".join(f"{quota}=900000000000" for quota in PlanQuota)
_ENVIRONMENT = {"PRESSROOM_QUOTA_PAID": _BOUNDS, "PRESSROOM_METRICS_TOKEN": METRICS_TOKEN}


@dataclass
class SizedStack:
    """A running stack, and the first owner, who has the most of everything."""

    stack: Stack
    volume: Volume
    owner: Owner
    # The owner's largest list.
    list_id: int
    worker: WorkerContext


@contextmanager
def services_in(keep: str | None) -> Iterator[tuple[Services, Path]]:
    """The services that stacks share, and their folder: ``keep`` stays, without it none does."""
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
        with running(stack, volume) as sized:
            yield sized


@contextmanager
def running(stack: Stack, volume: Volume) -> Iterator[SizedStack]:
    """All processes of a stack whose database is filled; their maintenance rests."""
    _rest_maintenance(stack)
    # The rest of a run that was ended half way would go first.
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
    """Fill the database unless it was filled so; its comment says how it was."""
    [(revision,)] = stack.query("SELECT version_num FROM alembic_version")
    wanted = {"factor": volume.factor, "seed": volume.seed, "revision": revision}
    [(kept,)] = stack.query(
        "SELECT shobj_description(oid, 'pg_database') FROM pg_database"
        " WHERE datname = current_database()"
    )
    if kept is not None and json.loads(str(kept)) == wanted:
        print(f"{volume.factor:g}×: the database of an earlier run", flush=True)
        return
    [(is_used,)] = stack.query("SELECT EXISTS (SELECT FROM users)")
    if is_used:
        raise RuntimeError(f"{stack.name} was filled otherwise, or not to the end: remove it first")
    print(f"{volume.factor:g}×:", flush=True)
    with _larger_log(stack.owner_url):
        seconds = seconds_of(lambda: fill(stack.owner_url, volume, stack.settings().keyring))
    [(size,)] = stack.query("SELECT pg_size_pretty(pg_database_size(current_database()))")
    print(f"  filled in {seconds:.0f} s: {size}", flush=True)
    comment = json.dumps(wanted)
    stack.query(f"COMMENT ON DATABASE \"{stack.name}\" IS '{comment}'")


@contextmanager
def _larger_log(url: str) -> Iterator[None]:
    """Fewer checkpoints while the database is filled."""
    with closing(psycopg2.connect(url)) as connection, connection.cursor() as running:
        connection.autocommit = True
        running.execute("ALTER SYSTEM SET max_wal_size = '6GB'")
        running.execute("SELECT pg_reload_conf()")
        yield
        running.execute("ALTER SYSTEM RESET max_wal_size")
        running.execute("SELECT pg_reload_conf()")
        running.execute("CHECKPOINT")


def _rest_maintenance(stack: Stack) -> None:
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
    """As the stack's workers have them, with the stand-ins that were started since."""
    named: dict[str, Any] = {
        key.removeprefix("PRESSROOM_").lower(): value
        for key, value in stack.environment.items()
        if key.startswith("PRESSROOM_")
    }
    return Settings.model_validate(named)
