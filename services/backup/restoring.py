"""Restoring a backup into an empty database: an operator does it, while nothing of ours runs.

Objects come before rows. The database is filled by one transaction, so a restore that was broken
off is simply begun again.
"""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import psycopg2
import psycopg2.errors
from psycopg2 import sql
from pydantic import SecretStr
from sqlalchemy import make_url, text

from core import clock
from core.errors import jobs as errors
from core.settings import Settings
from core.settings.given_settings import variable_of
from services.attachments import strays
from services.attachments.strays import STRAY_GRACE_PERIOD, StrayKind
from services.backup import creating, journal
from services.backup.creating import TRIAL, piece_name
from services.backup.journal import Replayed
from services.backup.manifests import Manifest, fingerprints, opened
from services.credits import verify as ledgers
from services.feed import reading
from storage.backup_files import postgres_tools
from storage.backup_files.places import SealedPlace
from storage.backup_files.postgres_tools import PostgresToolFailed
from storage.migrations.revisions import explain_unsupported, get_newest_revision
from storage.migrations.run import migrate
from storage.objects import ObjectStore
from storage.parts import remove_prefix
from storage.resources import Resources, open_resources


@dataclass(frozen=True)
class Restored:
    """The result of a restore.

    Attributes:
        objects: how many were put into the bucket; those that were there are not counted.
        revision: of the database's tables now.
    """

    objects: int
    revision: str
    replayed: Replayed


def restore(resources: Resources, place: SealedPlace, manifest: Manifest) -> Restored:
    """Restore, and replay the journal: who left since stays away.

    Raises ``backup.target_in_use``, and what ``require_fit`` and ``fill`` raise.
    """
    settings = resources.settings
    require_fit(manifest, settings)
    if _is_in_use(settings):
        raise errors.BACKUP_TARGET_IN_USE()
    put = creating.put_back(resources.objects, place, manifest)
    revision = fill(settings, place, manifest)
    with resources.unit_of_work() as uow:
        # Before the journal is replayed, which may add events.
        reading.raise_feed_places(uow)
    return Restored(put, revision, journal.replay(resources, place, manifest.began_at))


def _is_in_use(settings: Settings) -> bool:
    """Look at the database of both roles: the journal must not be replayed into another one."""
    if postgres_tools.has_tables(settings.migration_database_url or settings.database_url):
        return True
    try:
        return postgres_tools.has_tables(settings.database_url)
    except psycopg2.OperationalError:
        # Its role is made with the tables.
        return False


def require_fit(manifest: Manifest, settings: Settings) -> None:
    """The release and the keys must be those that the backup needs.

    Raises ``backup.too_new``, ``backup.too_old``, ``backup.key_missing`` and
    ``backup.key_differs``.
    """
    # Revisions are in the order of their names.
    if manifest.revision > get_newest_revision():
        raise errors.BACKUP_TOO_NEW(release=manifest.release, revision=manifest.revision)
    if explain_unsupported(manifest.revision):
        raise errors.BACKUP_TOO_OLD(release=manifest.release, revision=manifest.revision)
    for needed, keyring, setting in (
        (manifest.secret_keys, settings.keyring, "secret_keys"),
        (manifest.encryption_keys, settings.encryption_keyring, "encryption_keys"),
    ):
        given = fingerprints(keyring)
        for key_id, fingerprint in needed.items():
            if key_id not in given:
                raise errors.BACKUP_KEY_MISSING(key=key_id, setting=variable_of(setting))
            if given[key_id] != fingerprint:
                raise errors.BACKUP_KEY_DIFFERS(key=key_id, setting=variable_of(setting))


def fill(settings: Settings, place: SealedPlace, manifest: Manifest) -> str:
    """Bring the dump into the database, and the tables to this release; returns their revision.

    Raises ``backup.damaged``, ``backup.tool_failed``.
    """
    names = (piece_name(manifest.id, number) for number in range(manifest.database_pieces))
    try:
        owner = settings.migration_database_url or settings.database_url
        postgres_tools.restore(owner, (opened(place, name) for name in names))
    except PostgresToolFailed as error:
        raise errors.BACKUP_TOOL_FAILED(reason=error) from None
    return migrate(settings)


_ADVISORY_LOCK = 0x42616B75  # "Baku" in ASCII
_COUNTED = ("users", "lists", "subscriptions", "opt_outs", "credit_entries", "attachments")


@dataclass
class Verified:
    """The result of verifying a backup.

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
    require_fit(manifest, resources.settings)
    report = Verified(manifest.id)
    for name in journal.names(place, manifest.began_at):
        opened(place, name)
        report.journal_files += 1
    with _aside(resources.settings) as trial:
        report.objects = creating.put_back(trial.objects, place, manifest)
        report.revision = fill(trial.settings, place, manifest)
        for each in ledgers.verify_ledger(trial, full=True).faults:
            at = f"user {each.user_id}, entry {each.seq}, order {each.order_id}"
            report.faults.append(f"ledger: {each.fault} ({at})")
        # All objects are younger than strays are, since they have just been put there.
        for stray in strays.find_strays(
            trial, now=clock.now() + STRAY_GRACE_PERIOD + timedelta(hours=1)
        ):
            if stray.kind is StrayKind.ROW_WITHOUT_OBJECT:
                report.faults.append(f"attachments: {stray.kind} {stray.key}")
            else:
                report.later_objects += 1
        with trial.unit_of_work() as uow:
            for table in _COUNTED:
                count = uow.session.scalar(text(f"SELECT count(*) FROM {table}"))  # noqa: S608
                report.rows[table] = count or 0
    return report


@contextmanager
def _aside(settings: Settings) -> Iterator[Resources]:
    """An empty database on the same server, and an empty folder of the bucket; gone afterwards.

    The next verification removes the remains of a killed one.
    """
    owner = make_url((settings.migration_database_url or settings.database_url).get_secret_value())
    plain = owner.set(drivername="postgresql").render_as_string(hide_password=False)
    with closing(psycopg2.connect(plain, connect_timeout=10)) as session, ExitStack() as at_end:
        session.autocommit = True
        cursor = session.cursor()
        cursor.execute("SELECT pg_try_advisory_lock(%s)", (_ADVISORY_LOCK,))
        if cursor.fetchone() != (True,):
            raise errors.BACKUP_VERIFIED_NOW()
        # A busy server notices the end of the session late, and the next verification is refused.
        at_end.callback(cursor.execute, "SELECT pg_advisory_unlock(%s)", (_ADVISORY_LOCK,))
        url = owner.set(database=f"{owner.database}_backup_trial")
        name = sql.Identifier(url.database or "")
        drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(name)
        in_bucket = ObjectStore(settings, connections=1)
        remove_prefix(in_bucket, TRIAL.removesuffix("/"))
        try:
            cursor.execute(drop)
            cursor.execute(sql.SQL("CREATE DATABASE {}").format(name))
        except psycopg2.errors.InsufficientPrivilege as error:
            setting = variable_of("migration_database_url")
            reason = f"{str(error).strip()}: set {setting} to a role that may make databases"
            raise errors.BACKUP_TOOL_FAILED(reason=reason) from None
        secret = SecretStr(url.render_as_string(hide_password=False))
        own = {"database_url": secret, "migration_database_url": secret, "read_database_url": None}
        its = settings.model_copy(update=own)
        try:
            with closing(
                open_resources(its, concurrency=4, name="backup-trial", object_prefix=TRIAL)
            ) as trial:
                yield trial
        finally:
            cursor.execute(drop)
            remove_prefix(in_bucket, TRIAL.removesuffix("/"))
