"""Remembering which migrations a database has seen, to tell a warm start without asking it."""

import hashlib
from pathlib import Path

from devstack.supervisor.home.home import Home
from devstack.supervisor.home.private_files import write_private

# How `prepare` is told which database it prepares.
DATABASE_NAME_VARIABLE = "PRESSROOM_DEVSTACK_DATABASE"

# Found without importing: the supervisor must not load SQLAlchemy to start others quickly.
_MIGRATIONS = Path(__file__).parents[3] / "storage" / "migrations"


def fingerprint(database: str) -> str:
    """Changes whenever a migration or the database does.

    Args:
        database: what tells the database from others: its URL, or its directory.
    """
    digest = hashlib.sha256(database.encode())
    for file in sorted(_MIGRATIONS.rglob("*.py")):
        digest.update(b"\0" + file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def is_current(home: Home, database: str) -> bool:
    try:
        return home.schema_file.read_text() == fingerprint(database)
    except FileNotFoundError:
        return False


def remember(home: Home, database: str) -> None:
    write_private(home.schema_file, fingerprint(database))
