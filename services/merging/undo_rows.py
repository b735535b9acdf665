"""What is kept for the undo of imports, of a record that goes into another one.

An undo of such an import takes back what the other record brought by it, and leaves alone what the
account's own record had itself.
"""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import delete, exists, select, update

from models import ImportChange, Subscription
from storage.unit_of_work import UnitOfWork


def carry_over(
    uow: UnitOfWork, own: Subscription, other: Subscription, values: Mapping[str, Any]
) -> None:
    """Let the rows tell of the own record, which is about to get these values."""
    of_other = ImportChange.subscription_id == other.id
    for each in uow.session.scalars(select(ImportChange).where(of_other)).all():
        row = (ImportChange.import_id == each.import_id, of_other)
        same = exists().where(
            ImportChange.import_id == each.import_id, ImportChange.subscription_id == own.id
        )
        statement: Any = delete(ImportChange).where(*row)
        if not uow.session.scalar(select(same)):
            statement = update(ImportChange).where(*row).values(_told(each, own, values))
        uow.session.execute(statement.execution_options(synchronize_session=False))
        uow.session.expunge(each)


def _told(row: ImportChange, own: Subscription, values: Mapping[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = {"subscription_id": own.id, "activated": False}
    for name in ("name", "type", "paid_expiry"):
        had = getattr(own, name)
        if values[name] == had:
            told |= {f"{name}_before": had, f"{name}_after": had}
    if values["joined_at"] == own.joined_at:
        told |= {"joined_at_before": None, "joined_at_after": None}
    for name in ("fields_after", "fields_before"):
        found = getattr(row, name) or {}
        told[name] = {key: found[key] for key in found if key not in own.fields} or None
    told["tags_added"] = [each for each in row.tags_added or () if each not in own.tag_ids] or None
    return told
