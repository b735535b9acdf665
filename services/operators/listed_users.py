"""Lists the newest users for the command ``pressroom users list``.

The ORM models aren't imported, because importing them would take a third of the command's running
time.
"""

from datetime import datetime
from typing import NamedTuple

from core.languages.shown_lines import strip_invisible
from storage.database import Database, Statement

_NEWEST_USERS = Statement("""
    SELECT id, email, name, plan, is_operator, created_at FROM users
    WHERE (NOT CAST(:owners AS boolean)
            OR EXISTS (SELECT FROM lists WHERE lists.user_id = users.id))
        AND strpos(lower(email), lower(CAST(:part AS text))) > 0
    ORDER BY created_at DESC, id DESC LIMIT 1000
""")


class ListedUser(NamedTuple):
    id: int
    email: str
    name: str | None
    plan: str
    is_operator: bool
    created_at: datetime


def list_newest_users(database: Database, *, owners: bool, email: str) -> list[ListedUser]:
    """Return up to 1,000 users, newest first, whose address contains ``email`` in any case.

    If ``owners`` is true, return only list owners.
    """
    rows = database.rows(_NEWEST_USERS, owners=owners, part=strip_invisible(email))
    return [ListedUser(*row) for row in rows]
