"""The journal: who left a list and who was erased since a backup, in small files beside it.

Maintenance writes a file each minute in which there were departures. A file is written before its
rows go, so that a kill tells some of them twice. A restore replays the files from before its backup
on: so people who left later stay away. The journal does not have what they took back meanwhile.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

import orjson
from sqlalchemy import delete, func, select

from core.ids import random_hash_id
from models import Departure, DepartureKind, MailingList, OptOutKind
from services.backup.manifests import opened, stamp
from services.jobs.maintenance import register_maintenance
from services.privacy import erasure
from services.subscriptions.members import opt_outs
from storage.backup_files.places import SealedPlace, open_sealed_place
from storage.resources import Resources

WRITE_JOURNAL = register_maintenance(
    "backup.journal", every=timedelta(minutes=1), run=lambda resources, _: write(resources)
)
_FILES = "journal/"
_MAX_FILE_ROWS = 5_000
# Other periodic work waits for this.
_MAX_ROUNDS = 20
_MAX_BATCH_ROWS = 200
# A backup's time and a file's may be those of two servers of the database, after a failover.
_CLOCKS_DIFFER = timedelta(minutes=1)


@dataclass
class Replayed:
    """The numbers of records that a replay of the journal restored.

    Attributes:
        opt_outs: how many the database did not have.
        erasures: how many people are erased again.
    """

    files: int = 0
    opt_outs: int = 0
    erasures: int = 0


def write(resources: Resources) -> int | None:
    """Move all departures into the journal; how many they were."""
    if resources.settings.backup_url is None:
        return None
    # It is tried again in a minute.
    place = open_sealed_place(resources.settings, max_wait_seconds=0.0)
    written = 0
    for _ in range(_MAX_ROUNDS):
        with resources.unit_of_work() as uow:
            oldest = select(Departure).order_by(Departure.id).limit(_MAX_FILE_ROWS)
            rows = uow.session.scalars(oldest).all()
            # A moment after their commits, by the database's clock.
            read_at = uow.session.scalars(select(func.clock_timestamp())).one()
        if not rows:
            break
        told = [
            {
                "kind": row.kind,
                "list_id": row.list_id,
                "user_id": row.user_id,
                "address_hmac": row.address_hmac and row.address_hmac.hex(),
                "source": row.source,
                "at": row.created_at,
            }
            for row in rows
        ]
        place.put(f"{_FILES}{stamp(read_at)}-{random_hash_id(4)}", orjson.dumps(told))
        with resources.unit_of_work() as uow:
            ids = [row.id for row in rows]
            uow.session.execute(delete(Departure).where(Departure.id.in_(ids)))
        written += len(rows)
    return written


def names(place: SealedPlace, began_at: datetime, *, needed: bool = True) -> Iterator[str]:
    """The files that a restored backup needs which began then, in the order of time; or not."""
    first = _FILES + stamp(began_at - _CLOCKS_DIFFER)
    return (each.key for each in place.list_objects(_FILES) if (each.key >= first) is needed)


def replay(resources: Resources, place: SealedPlace, began_at: datetime) -> Replayed:
    """Opt out and erase again what left since. Doing it twice changes nothing.

    Call it before any process of ours uses the database. Raises ``backup.damaged``: what a file
    that can't be read told is not known.
    """
    done = Replayed()
    for name in names(place, began_at):
        rows = orjson.loads(opened(place, name))
        for begin in range(0, len(rows), _MAX_BATCH_ROWS):
            with resources.unit_of_work() as uow:
                for row in rows[begin : begin + _MAX_BATCH_ROWS]:
                    if row["kind"] == DepartureKind.ERASED:
                        done.erasures += erasure.mark_again(uow, row["user_id"])
                    # A list that was made after the backup is gone, with its members.
                    elif uow.session.get(MailingList, row["list_id"]) is not None:
                        done.opt_outs += opt_outs.restore_opt_out(
                            uow,
                            row["list_id"],
                            row["user_id"],
                            bytes.fromhex(row["address_hmac"]),
                            kind=OptOutKind(row["kind"]),
                            source=row["source"],
                            at=datetime.fromisoformat(row["at"]),
                        )
        done.files += 1
    return done
