"""The revisions of the database schema. A revision is the number of a migration."""

from pathlib import Path

from storage.database import Database, Statement

_SELECT_REVISIONS = Statement("SELECT version_num FROM alembic_version")
_MIGRATIONS_FOLDER = Path(__file__).parent / "versions"


def get_newest_revision() -> str:
    """Return the newest revision in this release, for example ``0100``."""
    return max(_list_revisions())


def is_compatible(database: Database, needed: str) -> bool:
    """Return whether the database has the needed revision or a later revision.

    During an upgrade, the older release must be able to use the migrated database. Revisions have a
    fixed number of digits, so that they can be compared as strings. Raises ``psycopg2.Error``, for
    example if the database has no tables.
    """
    return any(revision >= needed for revision in read_revisions(database))


def read_revisions(database: Database) -> list[str]:
    """Return the revisions in the table ``alembic_version``. Raises ``psycopg2.Error``."""
    return [revision for (revision,) in database.rows(_SELECT_REVISIONS)]


def explain_unsupported(revision: str) -> str | None:
    """Return why this release can't migrate a database from ``revision``, or ``None`` if it can.

    The explanation contains advice for the operator.
    """
    if revision in _list_revisions() or revision > get_newest_revision():
        return None
    return (
        f"its tables ({revision}) come from a development version before 1.0.0 and can't be "
        "migrated; create an empty database, and migrate it"
    )


def _list_revisions() -> list[str]:
    return [path.name.partition("_")[0] for path in _MIGRATIONS_FOLDER.glob("[0-9]*_*.py")]
