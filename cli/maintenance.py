"""The command ``pressroom maintenance``, which shows and runs periodic work."""

from datetime import datetime
from functools import partial
from typing import Annotated, Any

import typer
from sqlalchemy import func, select

from cli.connection import open_command_resources
from cli.jobs import register_kinds
from cli.output import Json, format_duration, print_record, print_records, select_fields
from models import Maintenance
from services.jobs import maintenance

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command("maintenance")
def run_or_list(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="The task to run now, even if it isn't due."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show all maintenance tasks, or run one task now."""
    with open_command_resources() as resources:
        if name is not None:
            register_kinds()
            kind = maintenance.get_kind(name)
            row = maintenance.run_now(resources, kind, partial(kind.run, resources))
            print_record(_details(row), as_json=as_json)
            return
        with resources.unit_of_work() as uow:
            rows = maintenance.list_all_rows(uow)
            now = uow.session.scalar(select(func.now()))
    assert now is not None
    describe = _details if as_json else partial(_row, now=now)
    print_records([describe(row) for row in rows], as_json=as_json)


def _details(row: Maintenance) -> dict[str, Any]:
    from services.operators.maintenance_runs import run_seconds

    return {
        **select_fields(row, "name every_seconds last_started_at last_finished_at"),
        "last_seconds": run_seconds(row),
        **select_fields(row, "last_result last_error"),
        "is_running": row.lease_expires_at is not None,
        **select_fields(row, "due_at"),
    }


def _row(row: Maintenance, *, now: datetime) -> dict[str, Any]:
    from services.operators.maintenance_runs import run_seconds

    seconds = run_seconds(row)
    is_running = row.lease_expires_at is not None
    due = (row.due_at - now).total_seconds()
    started = row.last_started_at
    result = row.last_result and row.last_result["done"]
    if row.last_result and result is None:
        # A backup task returns ``None`` if backups are disabled.
        result = "off"
    return {
        "name": row.name,
        "every": format_duration(row.every_seconds),
        "last run": started and f"{format_duration((now - started).total_seconds())} ago",
        "took": None if seconds is None else f"{seconds:.2f} s",
        "result": row.last_error or result,
        "next": "runs" if is_running else f"in {format_duration(due)}" if due > 0 else "due",
    }
