"""Writes and replays the journal of departures, which are unsubscriptions and erasures.

Every minute, a maintenance job moves the new departures from the database into a file of the
journal, and copies the new rows of ``address_opt_outs``. If a process is killed after writing a
journal file, the journal may contain the same departures twice. A restore replays all journal files
that are newer than the backup. The journal doesn't record new subscriptions, even if a person had
unsubscribed before.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import orjson
from sqlalchemy import delete, func, select

from core.ids import random_hash_id
from models import Departure, DepartureKind, MailingList, OptOutKind
from services.backup.manifests import format_timestamp, read_file
from services.jobs.maintenance import register_maintenance
from services.privacy import erasure
from services.subscriptions.members import address_opt_outs, opt_outs
from services.subscriptions.members.address_opt_outs import UnjournaledOptOut
from storage.backup_files.places import SealedPlace, open_sealed_place
from storage.resources import Resources

WRITE_JOURNAL = register_maintenance(
    "backup.journal", every=timedelta(minutes=1), run=lambda resources, _: write_journal(resources)
)
_FOLDER = "journal/"
_MAX_FILE_ROWS = 5_000
# If the address opt-outs in a journal file have this number of lists together, the file contains no
# further address opt-out. The lists take about 5 MB.
_MAX_FILE_LISTS = 300_000
# The kind of a row of ``address_opt_outs`` in a journal file. All other rows have a
# ``DepartureKind``.
_ADDRESS_KIND = "address"
# Each maintenance run writes at most this many journal files, so that it doesn't delay other
# maintenance.
_MAX_FILES = 20
_MAX_BATCH_ROWS = 200
# How far the clocks of two database servers may differ. After a failover, the times of a backup and
# of a journal file may come from the clocks of different servers.
_CLOCK_TOLERANCE = timedelta(minutes=1)


@dataclass
class ReplayResult:
    """How many departures were missing in the restored database."""

    files: int = 0
    opt_outs: int = 0
    erasures: int = 0


def write_journal(resources: Resources) -> int | None:
    """Move all departures into the journal. Return their number, or ``None`` without backups."""
    if resources.settings.backup_url is None:
        return None
    # Don't wait if the backup storage is unreachable, because the next maintenance run begins in a
    # minute.
    place = open_sealed_place(resources.settings, max_wait_seconds=0.0)
    written_rows = 0
    for _ in range(_MAX_FILES):
        with resources.unit_of_work() as uow:
            oldest = select(Departure).order_by(Departure.id).limit(_MAX_FILE_ROWS)
            rows = uow.session.scalars(oldest).all()
            of_addresses = address_opt_outs.find_unjournaled(
                uow, max_rows=_MAX_FILE_ROWS - len(rows), max_lists=_MAX_FILE_LISTS
            )
            # Read the unsubscriptions and erasures before the clock, so that the time in the file
            # name is later than all of them.
            read_at = uow.session.scalars(select(func.clock_timestamp())).one()
        if not (rows or of_addresses):
            break
        entries = [
            *map(_describe_departure, rows),
            *map(_describe_address_opt_out, of_addresses),
        ]
        place.put(
            f"{_FOLDER}{format_timestamp(read_at)}-{random_hash_id(4)}", orjson.dumps(entries)
        )
        with resources.unit_of_work() as uow:
            ids = [row.id for row in rows]
            uow.session.execute(delete(Departure).where(Departure.id.in_(ids)))
            address_opt_outs.mark_journaled(uow, of_addresses)
        written_rows += len(entries)
    return written_rows


def _describe_departure(row: Departure) -> dict[str, Any]:
    return {
        "kind": row.kind,
        "list_id": row.list_id,
        "user_id": row.user_id,
        "address_hmac": row.address_hmac and row.address_hmac.hex(),
        "source": row.source,
        "at": row.created_at,
    }


def _describe_address_opt_out(row: UnjournaledOptOut) -> dict[str, Any]:
    return {
        "kind": _ADDRESS_KIND,
        "owner_id": row.user_id,
        "list_ids": orjson.Fragment(row.list_ids),
        "address_hmac": row.address_hmac.hex(),
        "source": row.source,
        "at": row.created_at,
    }


def list_files(place: SealedPlace, began_at: datetime, *, needed: bool = True) -> Iterator[str]:
    """Return the names of the journal files that restoring a backup must replay, oldest first.

    ``began_at`` is the time when the backup began. If ``needed`` is false, return the older files
    instead.
    """
    first_name = _FOLDER + format_timestamp(began_at - _CLOCK_TOLERANCE)
    return (file.key for file in place.list_objects(_FOLDER) if (file.key >= first_name) is needed)


def replay_journal(resources: Resources, place: SealedPlace, began_at: datetime) -> ReplayResult:
    """Apply the opt-outs and erasures in the journal to the restored database.

    Replaying the journal a second time has no effect. Call this function before any process of
    Pressroom uses the restored database. An unreadable journal file raises ``backup.damaged``,
    because departures could otherwise be lost.
    """
    result = ReplayResult()
    for name in list_files(place, began_at):
        rows = orjson.loads(read_file(place, name))
        for begin in range(0, len(rows), _MAX_BATCH_ROWS):
            with resources.unit_of_work() as uow:
                for row in rows[begin : begin + _MAX_BATCH_ROWS]:
                    if row["kind"] == DepartureKind.ERASED:
                        result.erasures += erasure.mark_erased_again(uow, row["user_id"])
                    elif row["kind"] == _ADDRESS_KIND:
                        result.opt_outs += address_opt_outs.restore(
                            uow,
                            row["owner_id"],
                            row["list_ids"],
                            bytes.fromhex(row["address_hmac"]),
                            source=row["source"],
                            at=datetime.fromisoformat(row["at"]),
                        )
                    # Skip lists that were created after the backup, because the restored database
                    # doesn't contain them.
                    elif uow.session.get(MailingList, row["list_id"]) is not None:
                        result.opt_outs += opt_outs.restore_opt_out(
                            uow,
                            row["list_id"],
                            row["user_id"],
                            bytes.fromhex(row["address_hmac"]),
                            kind=OptOutKind(row["kind"]),
                            source=row["source"],
                            at=datetime.fromisoformat(row["at"]),
                        )
        result.files += 1
    return result
