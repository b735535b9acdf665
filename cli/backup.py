"""The commands of ``pressroom backup``."""

from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Annotated, Any

import typer

from cli.connection import open_command_resources
from cli.output import Json, create_group, print_record, print_records, select_fields
from core import clock
from services.backup import creating, manifests, restoring
from services.backup.creating import PruneResult
from services.backup.manifests import Manifest
from services.jobs import maintenance
from storage.backup_files.places import open_sealed_place

FAULTY = 1

app = create_group("Manage backups of the database and the bucket.")

Backup = Annotated[
    str, typer.Argument(metavar="ID", help="The backup's id. The default is the newest backup.")
]


@app.command("create")
def create(as_json: Json = False) -> None:
    """Create a backup now. The bucket keeps all its files until the backup is complete."""
    manifests_made: list[Manifest] = []
    with open_command_resources() as resources:
        place = open_sealed_place(resources.settings)

        def work(began_at: datetime) -> int:
            manifests_made.append(creating.create_backup(resources, place, began_at))
            return len(manifests_made)

        maintenance.run_now(resources, creating.CREATE_BACKUP, work)
    print_record(_described(manifests_made[0]), as_json=as_json)


@app.command("list")
def list_(as_json: Json = False) -> None:
    """Show all complete backups, oldest first."""
    with open_command_resources() as resources:
        backups = list(manifests.read_manifests(open_sealed_place(resources.settings)))
    print_records([_described(each) for each in backups], as_json=as_json)


@app.command("verify")
def verify(backup_id: Backup = manifests.NEWEST, as_json: Json = False) -> None:
    """Restore a backup into a temporary database, and check it. The exit code is 1 on errors.

    The command creates the temporary database on the database server, and a temporary folder in the
    bucket. The command deletes the temporary data at the end.
    """
    with open_command_resources() as resources:
        place = open_sealed_place(resources.settings)
        report = restoring.verify_backup(
            resources, place, manifests.find_manifest(place, backup_id)
        )
    if as_json:
        print_record(asdict(report), as_json=True)
    else:
        counts = {f"rows of {table}": count for table, count in report.rows.items()}
        brief = select_fields(report, "id revision objects later_objects journal_files")
        print_record({**brief, **counts, "faults": len(report.faults)}, as_json=False)
        for fault in report.faults:
            typer.echo(fault)
    if report.faults:
        raise typer.Exit(FAULTY)


@app.command("restore")
def restore(backup_id: Backup = manifests.NEWEST, as_json: Json = False) -> None:
    """Restore a backup into an empty database and the bucket. Stop all other processes first.

    The command also repeats the opt-outs and erasures that the journal recorded after the backup.
    """
    with open_command_resources() as resources:
        place = open_sealed_place(resources.settings)
        manifest = manifests.find_manifest(place, backup_id)
        report = restoring.restore_backup(resources, place, manifest)
    replayed = {
        "opt_outs_replayed": report.replayed.opt_outs,
        "erasures_replayed": report.replayed.erasures,
    }
    print_record(
        {"id": manifest.id, **select_fields(report, "revision objects"), **replayed},
        as_json=as_json,
    )


@app.command("prune")
def prune(
    days: Annotated[
        int | None,
        typer.Option(min=1, help="Days to keep backups. The default is PRESSROOM_BACKUP_DAYS."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Delete old backups and files that no other backup needs. The newest backup always stays."""
    pruned: list[PruneResult] = []
    with open_command_resources() as resources:
        settings = resources.settings
        place = open_sealed_place(settings)
        before = clock.now() - timedelta(days=days or settings.backup_days)

        def work(_: datetime) -> int:
            pruned.append(creating.prune_backups(place, before))
            return pruned[0].backups

        maintenance.run_now(resources, creating.CREATE_BACKUP, work)
    print_record(asdict(pruned[0]), as_json=as_json)


def _described(manifest: Manifest) -> dict[str, Any]:
    names = "id began_at finished_at release revision database_bytes objects copied"
    return select_fields(manifest, names)
