"""Counts the members that the undo of an import would restore."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import text

from models import MemberImport
from storage.unit_of_work import UnitOfWork

MAX_PREVIEWED = 100_000
_MAX_HOLDERS = 20
_IMPORTED_MEMBERS = """WITH imported_members AS (
    SELECT id, status = 'active' AS is_member, updated_at = imported_at AS is_untouched, imported_at
    FROM subscriptions WHERE import_id = :import_id LIMIT :max_members
)"""
_COUNT_MEMBERS = text(f"""{_IMPORTED_MEMBERS}
SELECT count(*), count(*) FILTER (WHERE is_member AND is_untouched),
    count(*) FILTER (WHERE NOT is_member)
FROM imported_members""")  # noqa: S608
_FIND_HOLDERS = text(f"""{_IMPORTED_MEMBERS}, held AS (
    SELECT * FROM imported_members WHERE is_member AND NOT is_untouched
), by_kind AS (
    SELECT 'bulk_action' AS kind, c.bulk_id AS id FROM held CROSS JOIN LATERAL (
        SELECT bulk_id FROM bulk_changes WHERE subscription_id = held.id
            AND applied_at > held.imported_at OFFSET 0
    ) AS c
    UNION ALL SELECT 'import', c.import_id FROM held CROSS JOIN LATERAL (
        SELECT import_id FROM import_changes WHERE subscription_id = held.id
            AND applied_at > held.imported_at AND import_id <> :import_id OFFSET 0
    ) AS c
)
SELECT kind, id, coalesce(
        CASE kind WHEN 'import' THEN (SELECT filename FROM imports WHERE id = by_kind.id)
            ELSE (SELECT action FROM bulk_actions WHERE id = by_kind.id) END, ''
    ) AS name, count(*) AS members
FROM by_kind GROUP BY kind, id ORDER BY members DESC, id DESC LIMIT :holders""")  # noqa: S608
_COUNT_EDITED = text(f"""{_IMPORTED_MEMBERS}
SELECT count(*) FROM imported_members AS held WHERE is_member AND NOT is_untouched
    AND NOT EXISTS (SELECT 1 FROM bulk_changes WHERE subscription_id = held.id
        AND applied_at > held.imported_at)
    AND NOT EXISTS (SELECT 1 FROM import_changes WHERE subscription_id = held.id
        AND applied_at > held.imported_at AND import_id <> :import_id)""")  # noqa: S608


class Holder(NamedTuple):
    """A bulk action or import that changed members after the import."""

    kind: str
    id: int
    name: str
    members: int


@dataclass(frozen=True)
class UndoForecast:
    """The expected result of undoing an import.

    Attributes:
        held_by: the later bulk actions and imports that changed the skipped members, at most
            ``_MAX_HOLDERS``. The first one changed the most members. To restore the skipped
            members, the owner must first undo the later bulk actions and imports, and then undo
            this import again.
        is_exact: whether all members of the import were counted. If ``is_exact`` is false, the
            numbers of members are lower bounds.
    """

    undone: int
    kept: int
    left: int
    edited: int
    held_by: Sequence[Holder]
    is_exact: bool


def forecast_undo(uow: UnitOfWork, task: MemberImport) -> UndoForecast:
    """Count the members that an undo would restore or skip, up to ``MAX_PREVIEWED`` members."""
    values = {"import_id": task.id, "max_members": MAX_PREVIEWED + 1}
    count, undone, left_count = uow.session.execute(_COUNT_MEMBERS, values).one()
    kept_count = count - undone - left_count
    edited_count = 0
    held_by: list[Holder] = []
    if kept_count:
        rows = uow.session.execute(_FIND_HOLDERS, {**values, "holders": _MAX_HOLDERS})
        held_by = [Holder(*row) for row in rows]
        edited_count = uow.session.execute(_COUNT_EDITED, values).scalar_one()
    return UndoForecast(
        undone, kept_count, left_count, edited_count, held_by, is_exact=count <= MAX_PREVIEWED
    )
