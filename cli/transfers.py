"""The commands ``pressroom import`` and ``pressroom export``."""

import shutil
import sys
from pathlib import Path
from typing import Annotated, BinaryIO, cast

import typer

from cli import import_results
from cli.connection import open_command_resources
from cli.output import Json, ListName, open_output_file, print_lists, print_record
from cli.progress import get_result, wait_for_job
from core.errors.imports import IMPORT_EMPTY_FILE, IMPORT_FILE, IMPORT_MAPPING_OPTION
from models import ImportKind
from services.subscriptions import exports, lists
from services.subscriptions.export_sheets import ExportKind
from services.subscriptions.imports import accepting, import_options
from services.subscriptions.imports.chunks import rejected_rows
from services.subscriptions.imports.columns.dates import DateOrder
from services.subscriptions.imports.columns.samples import add_samples
from services.subscriptions.imports.import_options import ImportOptions
from storage.resources import Resources

NOT_ALL_VALID = 3

import_app = typer.Typer(add_completion=False, rich_markup_mode=None)


@import_app.command()
def import_members(
    list_name: ListName,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The file to import, or - for stdin.")
    ],
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check every row without changing anything.")
    ] = False,
    update: Annotated[
        bool,
        typer.Option(
            "--update",
            help="Overwrite active members' names, tiers and fields with the file's values.",
        ),
    ] = False,
    mapping: Annotated[
        str | None, typer.Option(help='The role of each column, as JSON such as {"Mail": "email"}.')
    ] = None,
    kind: Annotated[
        ImportKind, typer.Option(help="The kind of rows: members or suppressed addresses.")
    ] = ImportKind.MEMBERS,
    create_fields: Annotated[
        bool, typer.Option("--create-fields", help="Create a field for each unknown column.")
    ] = False,
    date_order: Annotated[
        DateOrder | None,
        typer.Option(help="Whether dates such as 03/04/2025 start with the day or the month."),
    ] = None,
    status_values: Annotated[
        str | None,
        typer.Option(
            help=('The status for each value of a consent column, as JSON: {"2": "unsubscribed"}.')
        ),
    ] = None,
    encoding: Annotated[
        str | None,
        typer.Option(
            help="The file's encoding, such as cp1250. By default, the encoding is detected."
        ),
    ] = None,
    sheet: Annotated[
        str | None,
        typer.Option(
            help=(
                "The sheet of a workbook. By default, the first visible sheet with an e-mail "
                "column is read."
            )
        ),
    ] = None,
    errors: Annotated[
        Path | None, typer.Option(help="Write the rejected rows to this CSV file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Import members from a file.

    If you stop this command, the import continues. The exit code is 0 if every row is valid, 3 if
    some rows are invalid, and 1 if the import failed.
    """
    columns = import_options.read_mapping(mapping, IMPORT_MAPPING_OPTION)
    options = ImportOptions(
        dry_run=dry_run,
        on_existing="update" if update else "skip",
        mapping=columns,
        kind=kind,
        create_fields=create_fields,
        date_order=date_order,
        status_values=import_options.read_status_values(status_values),
        encoding=import_options.read_encoding(encoding),
        sheet=sheet,
    )
    with open_command_resources() as resources:
        job_id = _begin(resources, list_name, file, options)
        job = wait_for_job(resources, job_id, what=f"import into {list_name}", quiet=as_json)
        if errors is not None:
            assert job.subject_id is not None
            with open_output_file(errors) as out:
                out.writelines(rejected_rows.stream_rejected_rows(resources, job.subject_id))
        result = add_samples(resources, get_result(job))
    row = {"job_id": job.id, **result}
    if as_json:
        print_record(row, as_json=True)
    else:
        lists = import_results.format_lists(result)
        print_record({key: row[key] for key in row if key not in lists}, as_json=False)
        print_lists(lists)
    if result["invalid"]:
        raise typer.Exit(NOT_ALL_VALID)


def _begin(resources: Resources, list_name: str, file: Path, options: ImportOptions) -> int:
    with resources.unit_of_work() as uow:
        mailing_list = lists.get_named(uow, list_name)
    stored = accepting.create_file(resources)
    is_stdin = str(file) == "-"
    try:
        source: BinaryIO = sys.stdin.buffer if is_stdin else file.open("rb")
    except OSError as error:
        raise IMPORT_FILE(file=file, reason=error.strerror) from None
    with source:
        shutil.copyfileobj(source, cast("BinaryIO", stored.writer), 1024 * 1024)
    stored.writer.close()
    if not stored.writer.size:
        raise IMPORT_EMPTY_FILE()
    return accepting.accept_file(
        resources,
        mailing_list.user_id,
        mailing_list.id,
        file=stored,
        filename=None if is_stdin else file.name,
        options=options,
        by_operator=True,
    ).job_id


export_app = typer.Typer(add_completion=False, rich_markup_mode=None)


@export_app.command()
def export_list(
    list_name: ListName,
    kind: Annotated[
        ExportKind,
        typer.Option(
            help=(
                "'members' exports all members. 'delivery' exports the members who receive mail, "
                "with trace ids."
            )
        ),
    ] = ExportKind.MEMBERS,
    output: Annotated[
        Path | None, typer.Option(help="The file to write. The default is LIST-KIND.csv.gz.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Export the members of a list to a CSV.gz file."""
    with open_command_resources() as resources:
        with resources.unit_of_work() as uow:
            mailing_list = lists.get_named(uow, list_name)
            account_id = mailing_list.user_id
            job_id = exports.enqueue_export(
                uow, account_id, mailing_list, kind, by_operator=True
            ).id
        job = wait_for_job(resources, job_id, what=f"export of {list_name}", quiet=as_json)
        target = output or Path(f"{mailing_list.slug}-{kind}.csv.gz")
        result = get_result(job)
        with resources.unit_of_work() as uow:
            export, _ = exports.get_finished_export(uow, result["export_id"])
        with open_output_file(target) as out:
            out.writelines(exports.open_export_file(resources, export).stream())
    print_record({"job_id": job.id, "file": str(target), "rows": result["rows"]}, as_json=as_json)
