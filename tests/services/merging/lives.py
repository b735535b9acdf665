"""Two records of one person on some lists, written as the product writes them."""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from models import OptOutKind, User
from services.mailing.subscriptions import opt_outs
from services.people import accounts
from tests.importing import Importing
from tests.visiting import new_address


@dataclass(frozen=True)
class Had:
    """What a list knew of the person by one of their addresses. Without a status: no record."""

    status: str | None = None
    tier: str = "free"
    paid_expiry: datetime | None = None
    email_enabled: bool = True
    name: str | None = None
    fields: tuple[tuple[str, str], ...] = ()
    tags: frozenset[int] = frozenset()
    created_at: datetime | None = None
    joined_at: datetime | None = None
    refused: frozenset[str] = frozenset()


NOTHING = Had()

_RECORD = """
INSERT INTO subscriptions (list_id, user_id, status, type, paid_expiry, email_enabled, name, email,
    source, fields, tag_ids, created_at, joined_at)
SELECT %s, id, %s, %s, %s, %s, %s, email, 'form', %s, %s, %s, %s FROM users WHERE id = %s
"""


def new_people(quiet: Importing) -> tuple[int, int, str, str]:
    """An account and a person without one: their ids and addresses."""
    own, other = new_address(), new_address()
    with quiet.resources.unit_of_work() as uow:
        user_id = accounts.create_user(uow, email=own, password="correct horse battery").id
        other_id = accounts.create_user(uow, email=other).id
    return user_id, other_id, own, other


def live(quiet: Importing, list_id: int, user_id: int, had: Had) -> None:
    with quiet.resources.unit_of_work() as uow:
        person = uow.session.get_one(User, user_id)
        for kind in sorted(had.refused):
            opt_outs.record(
                uow, quiet.resources.keyring, list_id, person, kind=OptOutKind(kind), source="page"
            )
    # A person who asked to come back did so after they had left.
    quiet.stack.query(
        "UPDATE opt_outs SET created_at = now() - interval '1 day' WHERE user_id = %s", user_id
    )
    if had.status is not None:
        quiet.stack.query(
            _RECORD,
            list_id,
            had.status,
            had.tier,
            had.paid_expiry,
            had.email_enabled,
            had.name,
            json.dumps(dict(had.fields)),
            sorted(had.tags),
            had.created_at,
            had.joined_at,
            user_id,
        )


def found(quiet: Importing, list_id: int) -> list[dict[str, Any]]:
    """All records of a list, and who has refused what."""
    rows = quiet.stack.query(
        "SELECT json_build_object('user_id', user_id, 'status', status, 'tier', type,"
        " 'paid_expiry', extract(epoch FROM paid_expiry), 'email_enabled', email_enabled,"
        " 'name', name, 'email', email, 'fields', fields, 'tags', tag_ids,"
        " 'joined', extract(epoch FROM coalesce(joined_at, created_at)))"
        " FROM subscriptions WHERE list_id = %s",
        list_id,
    )
    return [row for (row,) in rows if isinstance(row, dict)]


def now(quiet: Importing) -> datetime:
    [(moment,)] = quiet.stack.query("SELECT now()")
    assert isinstance(moment, datetime)
    return moment


def refused(quiet: Importing, list_id: int, user_id: int) -> set[str]:
    rows = quiet.stack.query(
        "SELECT kind FROM opt_outs WHERE list_id = %s AND user_id = %s", list_id, user_id
    )
    return {str(kind) for (kind,) in rows}


def rows_of(quiet: Importing, user_id: int) -> dict[str, int]:
    """How many rows tell of a person, by table."""
    tables = (
        *("subscriptions", "opt_outs", "subscription_events", "consent_entries"),
        *("mailed_links", "list_reports", "account_mails"),
    )
    counts = {
        table: quiet.stack.query(f"SELECT count(*) FROM {table} WHERE user_id = %s", user_id)
        for table in tables
    }
    return {table: int(str(rows[0][0])) for table, rows in counts.items() if rows[0][0]}
