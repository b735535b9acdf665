"""Restoring a backup into an empty database: an operator does it, while nothing of ours runs.

Objects come before rows. The database is filled by one transaction, so a restore that was broken
off is simply begun again.
"""

from dataclasses import dataclass

from core.keyring import Keyring
from core.refusals.jobs import (
    BACKUP_KEY_DIFFERS,
    BACKUP_KEY_MISSING,
    BACKUP_TARGET_IN_USE,
    BACKUP_TOO_NEW,
    BACKUP_TOO_OLD,
    BACKUP_TOOL_FAILED,
)
from core.settings import Settings
from core.settings.given_settings import variable_of
from services.backup import journal, kept_objects
from services.backup.creating import piece_name
from services.backup.journal import Replayed
from services.backup.manifests import Manifest, fingerprints, opened
from services.feed import positions
from storage.backup_files import postgres_tools
from storage.backup_files.postgres_tools import PostgresToolFailed
from storage.backup_files.sealed_place import SealedPlace
from storage.migrations.revisions import dead_end, newest_revision
from storage.migrations.run import migrate
from storage.resources import Resources


@dataclass(frozen=True)
class Restored:
    """
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
    if postgres_tools.has_tables(settings.migration_database_url or settings.database_url):
        raise BACKUP_TARGET_IN_USE()
    put = kept_objects.put_back(resources.objects, place, manifest)
    revision = fill(settings, place, manifest)
    with resources.unit_of_work() as uow:
        # Before the journal is replayed, which may add events.
        positions.raise_places(uow)
    return Restored(put, revision, journal.replay(resources, place, manifest.began_at))


def require_fit(manifest: Manifest, settings: Settings) -> None:
    """The release and the keys must be those that the backup needs.

    Raises ``backup.too_new``, ``backup.too_old``, ``backup.key_missing`` and
    ``backup.key_differs``.
    """
    # Revisions are in the order of their names.
    if manifest.revision > newest_revision():
        raise BACKUP_TOO_NEW(release=manifest.release, revision=manifest.revision)
    if dead_end(manifest.revision):
        raise BACKUP_TOO_OLD(release=manifest.release, revision=manifest.revision)
    _require_keys(manifest.secret_keys, settings.keyring, variable_of("secret_keys"))
    _require_keys(
        manifest.encryption_keys, settings.encryption_keyring, variable_of("encryption_keys")
    )


def _require_keys(needed: dict[str, str], keyring: Keyring, setting: str) -> None:
    given = fingerprints(keyring)
    for key_id, fingerprint in needed.items():
        if key_id not in given:
            raise BACKUP_KEY_MISSING(key=key_id, setting=setting)
        if given[key_id] != fingerprint:
            raise BACKUP_KEY_DIFFERS(key=key_id, setting=setting)


def fill(settings: Settings, place: SealedPlace, manifest: Manifest) -> str:
    """Bring the dump into the database, and the tables to this release; returns their revision.

    Raises ``backup.damaged``, ``backup.tool_failed``.
    """
    pieces = (
        opened(place, piece_name(manifest.id, number)) for number in range(manifest.database_pieces)
    )
    try:
        owner = settings.migration_database_url or settings.database_url
        postgres_tools.restore(owner, pieces)
    except PostgresToolFailed as error:
        raise BACKUP_TOOL_FAILED(reason=error) from None
    return migrate(settings)
