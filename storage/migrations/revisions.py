"""The schema's revisions, by the numbers with which their files begin."""

from pathlib import Path

from storage.database import Database, Statement

_APPLIED = Statement("SELECT version_num FROM alembic_version")
_VERSIONS = Path(__file__).parent / "versions"


def newest_revision() -> str:
    """This release's own revision, such as ``0100``."""
    return max(_own_revisions())


def fits(database: Database, needed: str) -> bool:
    """Return whether the database's revision is the needed one, or a later release's.

    A later release migrates while this one still runs, and each migration leaves working what the
    release before it needs. Alembic's names have no order of their own, and this process has no
    file of a revision that is newer than itself: so revisions are numbers with as many digits, and
    a later one is a higher one. Raises ``psycopg2.Error``, for a database without tables too.
    """
    return any(each >= needed for each in applied(database))


def applied(database: Database) -> list[str]:
    """The database's own revision, in a list. Raises ``psycopg2.Error`` as ``fits`` does."""
    return [revision for (revision,) in database.rows(_APPLIED)]


def dead_end(revision: str) -> str | None:
    """Why no migration of this release leads on from a revision, and what to do; else ``None``."""
    if revision in _own_revisions():
        return None
    if revision > newest_revision():
        return f"its tables ({revision}) are a later release's: migrate it with that release"
    return (
        f"its tables ({revision}) are those of a development version before 1.0.0, and no migration "
        "leads on from there: create an empty database, and migrate that one"
    )


def _own_revisions() -> list[str]:
    return [path.name.partition("_")[0] for path in _VERSIONS.glob("[0-9]*_*.py")]
