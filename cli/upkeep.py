from datetime import datetime
from functools import partial
from typing import Annotated, Any

import typer
from sqlalchemy import func, select

from cli.connection import connected
from cli.output import Json, fields, show, show_all
from core.settings import load_settings
from models import Upkeep
from services.jobs import upkeep
from services.operating.upkeep_runs import last_seconds
from workers.context import WorkerContext
from workers.queues.serving import serving
from workers.tasks.table import TASKS

app = typer.Typer(add_completion=False)


@app.command("upkeep")
def run_or_list(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Run this upkeep now, due or not.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the periodic work of the deployment, or run one kind of it in this process."""
    with connected() as resources:
        if name is not None:
            kind = upkeep.kind_named(name)
            work = partial(TASKS.upkeep[kind], WorkerContext(load_settings(), serving([kind.lane])))
            show(_described(upkeep.run_now(resources, kind, work)), as_json=as_json)
            return
        with resources.unit_of_work() as uow:
            rows = upkeep.records(uow)
            now = uow.session.scalar(select(func.now()))
    assert now is not None
    shown = _described if as_json else partial(_brief, now=now)
    show_all([shown(row) for row in rows], as_json=as_json)


def _described(row: Upkeep) -> dict[str, Any]:
    return {
        **fields(row, "name every_seconds last_started_at last_finished_at"),
        "last_seconds": last_seconds(row),
        **fields(row, "last_result last_error"),
        "is_running": row.lease_expires_at is not None,
        **fields(row, "due_at"),
    }


def _brief(row: Upkeep, *, now: datetime) -> dict[str, Any]:
    """In a table of 80 columns: times from now, by the database's clock."""
    seconds = last_seconds(row)
    is_running = row.lease_expires_at is not None
    due = (row.due_at - now).total_seconds()
    started = row.last_started_at
    return {
        "name": row.name,
        "every": _duration(row.every_seconds),
        "last run": started and f"{_duration((now - started).total_seconds())} ago",
        "took": None if seconds is None else f"{seconds:.2f} s",
        "result": row.last_error or (row.last_result or {}).get("done"),
        "next": "runs" if is_running else f"in {_duration(due)}" if due > 0 else "due",
    }


def _duration(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length or seconds == length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
