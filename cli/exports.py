from pathlib import Path
from typing import Annotated

import typer

from cli.connection import connected
from cli.output import Json, show, written
from cli.progress import result_of, wait_for
from services.mailing import exports, lists
from services.mailing.export_sheets import ExportKind

app = typer.Typer(add_completion=False)


@app.command()
def export_list(
    list_name: Annotated[str, typer.Argument(metavar="LIST", help="Its id or slug.")],
    kind: Annotated[
        ExportKind,
        typer.Option(help="members, or delivery: the members who get mail, with trace ids."),
    ] = ExportKind.MEMBERS,
    output: Annotated[
        Path | None, typer.Option(help="The file to write; LIST-KIND.csv.gz by default.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a list to a CSV.gz file, as it is at one moment."""
    with connected() as resources:
        with resources.unit_of_work() as uow:
            mailing_list = lists.get_named(uow, list_name)
            owner_id = mailing_list.user_id
            job_id = exports.enqueue_export(uow, owner_id, mailing_list, kind, by_operator=True).id
        job = wait_for(resources, job_id, what=f"export of {list_name}", quiet=as_json)
        target = output or Path(f"{mailing_list.slug}-{kind}.csv.gz")
        result = result_of(job)
        with resources.unit_of_work() as uow:
            export, _ = exports.get_finished(uow, result["export_id"])
        with written(target) as out:
            out.writelines(exports.open_file(resources, export).stream())
    show({"job_id": job.id, "file": str(target), "rows": result["rows"]}, as_json=as_json)
