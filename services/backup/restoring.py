"""Restores a backup into an empty database, and verifies backups.

No process of Pressroom may be running during a restore. Objects are restored before the database
rows that refer to them. The whole database is restored in one transaction, so an interrupted
restore can simply be started again.
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
from services.backup.journal import ReplayResult
from services.backup.manifests import Manifest, fingerprint_keys, read_file
from services.credits import verify as ledgers
from services.feed import reading
from services.subscriptions.watches import watches
from storage.backup_files import postgres_tools
from storage.backup_files.places import SealedPlace
from storage.backup_files.postgres_tools import PostgresToolFailed
from storage.migrations.revisions import explain_unsupported, get_newest_revision
from storage.migrations.run import migrate
from storage.objects import ObjectStore
from storage.parts import remove_prefix
from storage.resources import Resources, open_resources

_ADVISORY_LOCK = 0x42616B75  # "Baku" in ASCII
_COUNTED_TABLES = (
    "users",
    "lists",
    "subscriptions",
    "opt_outs",
    "address_opt_outs",
    "credit_entries",
    "attachments",
)


@dataclass(frozen=True)
class RestoreResult:
    objects: int
    revision: str
    replayed: ReplayResult


def restore_backup(resources: Resources, place: SealedPlace, manifest: Manifest) -> RestoreResult:
    settings = resources.settings
    require_compatible_backup(manifest, settings)
    if _is_in_use(settings):
        raise errors.BACKUP_TARGET_IN_USE()
    objects = creating.restore_objects(resources.objects, place, manifest)
    revision = fill_database(settings, place, manifest)
    with resources.unit_of_work() as uow:
        # Raise the positions of new feed events, so that they come after all cursors that API
        # clients have stored.
        reading.raise_feed_places(uow)
        watches.silence_watches(uow)
    return RestoreResult(
        objects, revision, journal.replay_journal(resources, place, manifest.began_at)
    )


def _is_in_use(settings: Settings) -> bool:
    """Return whether tables exist. Both URLs are checked, because they may differ by mistake."""
    if postgres_tools.has_tables(settings.migration_database_url or settings.database_url):
        return True
    try:
        return postgres_tools.has_tables(settings.database_url)
    except psycopg2.OperationalError:
        # The application's database role may not exist yet, because the restore creates it.
        return False


def require_compatible_backup(manifest: Manifest, settings: Settings) -> None:
    # The names of schema revisions sort from old to new.
    if manifest.revision > get_newest_revision():
        raise errors.BACKUP_TOO_NEW(release=manifest.release, revision=manifest.revision)
    if explain_unsupported(manifest.revision):
        raise errors.BACKUP_TOO_OLD(release=manifest.release, revision=manifest.revision)
    for needed_keys, keyring, setting in (
        (manifest.secret_keys, settings.keyring, "secret_keys"),
        (manifest.encryption_keys, settings.encryption_keyring, "encryption_keys"),
    ):
        configured_keys = fingerprint_keys(keyring)
        for key_id, fingerprint in needed_keys.items():
            if key_id not in configured_keys:
                raise errors.BACKUP_KEY_MISSING(key=key_id, setting=variable_of(setting))
            if configured_keys[key_id] != fingerprint:
                raise errors.BACKUP_KEY_DIFFERS(key=key_id, setting=variable_of(setting))


def fill_database(settings: Settings, place: SealedPlace, manifest: Manifest) -> str:
    names = (piece_name(manifest.id, number) for number in range(manifest.database_pieces))
    try:
        owner = settings.migration_database_url or settings.database_url
        postgres_tools.restore(owner, (read_file(place, name) for name in names))
    except PostgresToolFailed as error:
        raise errors.BACKUP_TOOL_FAILED(reason=error) from None
    return migrate(settings)


@dataclass
class VerifyResult:
    """The result of verifying a backup.

    Attributes:
        later_objects: the number of objects that were uploaded after the database dump had begun.
        journal_files: the number of journal files that restoring the backup would replay.
    """

    id: str
    revision: str = ""
    objects: int = 0
    later_objects: int = 0
    journal_files: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


def verify_backup(resources: Resources, place: SealedPlace, manifest: Manifest) -> VerifyResult:
    """Restore a backup into a temporary database, and verify the restored ledger and attachments.

    Raises ``backup.verified_now`` if a verification of a backup is already running.
    """
    require_compatible_backup(manifest, resources.settings)
    report = VerifyResult(manifest.id)
    for name in journal.list_files(place, manifest.began_at):
        read_file(place, name)
        report.journal_files += 1
    with _create_trial_resources(resources.settings) as trial:
        report.objects = creating.restore_objects(trial.objects, place, manifest)
        report.revision = fill_database(trial.settings, place, manifest)
        for fault in ledgers.verify_ledger(trial, full=True).faults:
            place_of_fault = f"user {fault.user_id}, entry {fault.seq}, order {fault.order_id}"
            report.faults.append(f"ledger: {fault.fault} ({place_of_fault})")
        # Pass a later time than now, because the search for strays ignores recently created
        # objects.
        for stray in strays.find_strays(
            trial, now=clock.now() + STRAY_GRACE_PERIOD + timedelta(hours=1)
        ):
            if stray.kind is StrayKind.ROW_WITHOUT_OBJECT:
                report.faults.append(f"attachments: {stray.kind} {stray.key}")
            else:
                report.later_objects += 1
        with trial.unit_of_work() as uow:
            for table in _COUNTED_TABLES:
                count = uow.session.scalar(text(f"SELECT count(*) FROM {table}"))  # noqa: S608
                report.rows[table] = count or 0
    return report


@contextmanager
def _create_trial_resources(settings: Settings) -> Iterator[Resources]:
    """Create a temporary database on the database server, and a temporary folder in the bucket.

    If a verification is killed, the next verification removes the temporary database and folder.
    """
    owner = make_url((settings.migration_database_url or settings.database_url).get_secret_value())
    plain = owner.set(drivername="postgresql").render_as_string(hide_password=False)
    with closing(psycopg2.connect(plain, connect_timeout=10)) as session, ExitStack() as at_end:
        session.autocommit = True
        cursor = session.cursor()
        cursor.execute("SELECT pg_try_advisory_lock(%s)", (_ADVISORY_LOCK,))
        if cursor.fetchone() != (True,):
            raise errors.BACKUP_VERIFIED_NOW()
        # Release the advisory lock explicitly. On a busy database server, the lock of a closed
        # connection may still block the next verification of a backup.
        at_end.callback(cursor.execute, "SELECT pg_advisory_unlock(%s)", (_ADVISORY_LOCK,))
        url = owner.set(database=f"{owner.database}_backup_trial")
        name = sql.Identifier(url.database or "")
        drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(name)
        objects = ObjectStore(settings, connections=1)
        remove_prefix(objects, TRIAL.removesuffix("/"))
        try:
            cursor.execute(drop)
            cursor.execute(sql.SQL("CREATE DATABASE {}").format(name))
        except psycopg2.errors.InsufficientPrivilege as error:
            setting = variable_of("migration_database_url")
            reason = f"{str(error).strip()}. Set {setting} to a role that can create databases"
            raise errors.BACKUP_TOOL_FAILED(reason=reason) from None
        secret = SecretStr(url.render_as_string(hide_password=False))
        trial_settings = settings.model_copy(
            update={
                "database_url": secret,
                "migration_database_url": secret,
                "read_database_url": None,
            }
        )
        try:
            with closing(
                open_resources(
                    trial_settings, concurrency=4, name="backup-trial", object_prefix=TRIAL
                )
            ) as trial:
                yield trial
        finally:
            cursor.execute(drop)
            remove_prefix(objects, TRIAL.removesuffix("/"))
