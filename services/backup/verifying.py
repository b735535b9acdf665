"""Verifying a backup: it is restored into a database and a folder of the bucket of its own.

Both are thrown away afterwards; what a killed one left goes with the next.
"""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import psycopg2
import psycopg2.errors
from psycopg2 import sql
from pydantic import SecretStr
from sqlalchemy import URL, make_url, text

from core import clock
from core.refusals.jobs import BACKUP_TOOL_FAILED, BACKUP_VERIFIED_NOW
from core.settings import Settings
from services.backup import journal, kept_objects, restoring
from services.backup.creating import TRIAL
from services.backup.manifests import Manifest, opened
from services.media.attachments import strays
from services.media.attachments.strays import STRAY_GRACE, StrayKind
from services.money.credits import verify as ledgers
from storage.backup_files.sealed_place import SealedPlace
from storage.objects import ObjectStore
from storage.parts import remove_all
from storage.resources import Resources, open_resources

_ADVISORY_LOCK = 0x42616B75  # "Baku" in ASCII
_COUNTED = ("users", "lists", "subscriptions", "opt_outs", "credit_entries", "attachments")


@dataclass
class Verified:
    """
    Attributes:
        faults: what is wrong, in sentences; the backup is good without any.
        rows: how many rows some tables have.
        later_objects: images that were uploaded while the backup was made, after its dump.
        journal_files: how many files of the journal a restore would replay, all readable.
    """

    id: str
    revision: str = ""
    objects: int = 0
    later_objects: int = 0
    journal_files: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


def verify(resources: Resources, place: SealedPlace, manifest: Manifest) -> Verified:
    """Restore the backup aside, and look at the ledger and the attachments.

    Raises what ``restoring.restore`` raises of a backup that can't be restored, and
    ``backup.verified_now``.
    """
    restoring.require_fit(manifest, resources.settings)
    report = Verified(manifest.id)
    for name in journal.names_since(place, manifest.began_at):
        opened(place, name)
        report.journal_files += 1
    with _aside(resources.settings) as trial:
        report.objects = kept_objects.put_back(trial.objects, place, manifest)
        report.revision = restoring.fill(trial.settings, place, manifest)
        _examine(trial, report)
    return report


def _examine(trial: Resources, report: Verified) -> None:
    for fault in ledgers.verify(trial, full=True).faults:
        report.faults.append(
            f"ledger: {fault.fault} (user {fault.user_id}, entry {fault.seq}, "
            f"order {fault.order_id})"
        )
    # All objects are younger than strays are, since they have just been put there.
    for stray in strays.find(trial, now=clock.now() + STRAY_GRACE + timedelta(hours=1)):
        if stray.kind is StrayKind.ROW_WITHOUT_OBJECT:
            report.faults.append(f"attachments: {stray.kind} {stray.key}")
        else:
            report.later_objects += 1
    with trial.unit_of_work() as uow:
        for table in _COUNTED:
            count = uow.session.scalar(text(f"SELECT count(*) FROM {table}"))  # noqa: S608
            report.rows[table] = count or 0


@contextmanager
def _aside(settings: Settings) -> Iterator[Resources]:
    """An empty database on the same server, and an empty folder of the bucket; gone afterwards."""
    owner = make_url((settings.migration_database_url or settings.database_url).get_secret_value())
    plain = owner.set(drivername="postgresql").render_as_string(hide_password=False)
    with closing(psycopg2.connect(plain, connect_timeout=10)) as session, ExitStack() as at_end:
        session.autocommit = True
        cursor = session.cursor()
        cursor.execute("SELECT pg_try_advisory_lock(%s)", (_ADVISORY_LOCK,))
        if cursor.fetchone() != (True,):
            raise BACKUP_VERIFIED_NOW()
        # A busy server notices the end of the session late, and the next verification is refused.
        at_end.callback(cursor.execute, "SELECT pg_advisory_unlock(%s)", (_ADVISORY_LOCK,))
        url = owner.set(database=f"{owner.database}_backup_trial")
        name = sql.Identifier(url.database or "")
        drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(name)
        in_bucket = ObjectStore(settings, connections=1)
        remove_all(in_bucket, TRIAL.removesuffix("/"))
        try:
            cursor.execute(drop)
            cursor.execute(sql.SQL("CREATE DATABASE {}").format(name))
        except psycopg2.errors.InsufficientPrivilege as error:
            raise BACKUP_TOOL_FAILED(reason=str(error).strip()) from None
        try:
            with _resources(settings, url) as trial:
                yield trial
        finally:
            cursor.execute(drop)
            remove_all(in_bucket, TRIAL.removesuffix("/"))


@contextmanager
def _resources(settings: Settings, url: URL) -> Iterator[Resources]:
    secret = SecretStr(url.render_as_string(hide_password=False))
    own = {"database_url": secret, "migration_database_url": secret, "read_database_url": None}
    trial = open_resources(
        settings.model_copy(update=own), concurrency=4, name="backup-trial", object_prefix=TRIAL
    )
    try:
        yield trial
    finally:
        trial.close()
