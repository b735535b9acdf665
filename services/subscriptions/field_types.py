"""Changing the type of a field of which members have values.

All values are converted in the transaction that changes the type, or none. The lists of the owner
are held meanwhile, so nobody writes a value of the earlier type.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import psycopg2.errors
from sqlalchemy import select, text

from core.errors import DomainError
from core.errors import mailing as errors
from models import FieldType, MailingList, MemberField
from services.subscriptions import fields
from services.subscriptions.fields import FieldValue
from services.subscriptions.imports.column_forms import ColumnForms
from services.subscriptions.imports.field_values import abbreviate_cell, parse_value
from services.subscriptions.members import locks
from storage.expected_errors import raise_instead
from storage.unit_of_work import UnitOfWork

# Their conversion takes a second or two.
MAX_DIFFERENT_VALUES = 50_000
_MAX_NAMED = 3

_IN_FILTER = """jsonb_path_exists(filter, 'strict $.** ? (@.field == $name)',
    jsonb_build_object('name', CAST(:name AS text)), true)"""
_USES = text(f"""
SELECT 'segment' AS kind, id, name FROM segments WHERE list_id = ANY (:list_ids) AND {_IN_FILTER}
UNION ALL
SELECT 'bulk_action', id, action FROM bulk_actions
WHERE list_id = ANY (:list_ids) AND status = 'running' AND {_IN_FILTER}
UNION ALL
SELECT 'export', id, kind FROM exports
WHERE list_id = ANY (:list_ids) AND finished_at IS NULL AND {_IN_FILTER}
UNION ALL
SELECT 'import', id, coalesce(filename, '') FROM imports
WHERE list_id = ANY (:list_ids) AND status = 'running' AND NOT dry_run
ORDER BY kind DESC, id
""")  # noqa: S608
# Values that an undo of an import would put back are converted too.
_CHANGES = "import_changes WHERE import_id IN (SELECT id FROM imports WHERE user_id = :owner_id)"
_VALUES = text(f"""
SELECT DISTINCT value FROM (
    SELECT fields -> :key AS value FROM subscriptions
    WHERE list_id = ANY (:list_ids) AND fields ? :key
    UNION ALL SELECT fields_before -> :key FROM {_CHANGES} AND fields_before ? :key
    UNION ALL SELECT fields_after -> :key FROM {_CHANGES} AND fields_after ? :key
) AS held WHERE jsonb_typeof(value) <> 'null' LIMIT :most
""")  # noqa: S608
_NEW = "jsonb_to_recordset(CAST(:pairs AS jsonb)) AS new (before jsonb, after jsonb)"
# `updated_at` stays, by which an undo knows its own work.
_CONVERT = text(f"""
UPDATE subscriptions AS m SET fields = m.fields || jsonb_build_object(:key, new.after)
FROM {_NEW} WHERE list_id = ANY (:list_ids) AND m.fields ? :key AND m.fields -> :key = new.before
""")  # noqa: S608
_CONVERT_KEPT = [
    text(f"""
UPDATE import_changes AS c SET {column} = c.{column} || jsonb_build_object(:key, new.after)
FROM {_NEW} WHERE c.import_id IN (SELECT id FROM imports WHERE user_id = :owner_id)
    AND c.{column} ? :key AND c.{column} -> :key = new.before
""")  # noqa: S608
    for column in ("fields_before", "fields_after")
]


def change_field_and_type(
    uow: UnitOfWork, owner_id: int, field_id: int, values: Mapping[str, Any]
) -> MemberField:
    """Change a field, and possibly its type. Texts are then parsed as an import parses them.

    Raises the errors of ``fields.change_field``, ``field.in_use``, ``field.values_unfit``,
    ``field.too_many_values``, ``list.busy``.
    """
    columns = fields.validate_columns(values)
    field = fields.get_field(uow, owner_id, field_id, lock=True)
    type_ = FieldType(columns.get("type", field.type))
    if type_ != field.type:
        columns.setdefault("choices", [])
        _convert(uow, field, MemberField(type=type_, label=field.label, choices=columns["choices"]))
    return fields.change_field(uow, owner_id, field_id, columns)


def _convert(uow: UnitOfWork, field: MemberField, changed: MemberField) -> None:
    owned = select(MailingList.id).where(MailingList.user_id == field.user_id)
    list_ids = list(uow.session.scalars(owned.order_by(MailingList.id)))
    with locks.limit_lock_waits(uow):
        for list_id in list_ids:
            locks.lock_list(uow, list_id)
    values = {"list_ids": list_ids, "owner_id": field.user_id, "key": str(field.id)}
    name = {"name": f"fields.{field.id}", "list_ids": list_ids}
    if uses := [row._asdict() for row in uow.session.execute(_USES, name)]:
        words, facts = errors.format_uses(uses), {"used_by": uses}
        raise errors.FIELD_IN_USE(key=field.key, uses=words, facts=facts)
    too_many = errors.FIELD_TOO_MANY_VALUES(most=MAX_DIFFERENT_VALUES)
    with raise_instead(psycopg2.errors.QueryCanceled, too_many):
        found = uow.session.scalars(_VALUES, {**values, "most": MAX_DIFFERENT_VALUES + 1}).all()
        if len(found) > MAX_DIFFERENT_VALUES:
            raise too_many
        new = _converted(changed, found)
        pairs = [{"before": each, "after": after} for each, after in zip(found, new, strict=True)]
        values["pairs"] = orjson.dumps(pairs).decode()
        for statement in (_CONVERT, *_CONVERT_KEPT):
            uow.session.execute(statement, values)


def _converted(changed: MemberField, found: Sequence[FieldValue]) -> list[FieldValue | None]:
    """The values of the new type; raises ``field.values_unfit``."""
    texts = [fields.format_value(each) for each in found]
    forms = ColumnForms()
    dates, numbers = ([0] * (changed.type == each) for each in (FieldType.DATE, FieldType.NUMBER))
    forms.learn(dates, numbers, [[each] for each in texts])
    new: list[FieldValue | None] = []
    for written in texts:
        try:
            new.append(parse_value(written, changed, forms, 0))
        except ValueError:
            new.append(None)
    unfit = [abbreviate_cell(each) for each, value in zip(texts, new, strict=True) if value is None]
    try:
        forms.find_notations([changed.label])
    except DomainError:
        # Nothing shows whether the day or the month comes first.
        unfit = [abbreviate_cell(each) for each in texts]
    if unfit:
        named = ", ".join(map(repr, unfit[:_MAX_NAMED]))
        raise errors.FIELD_VALUES_UNFIT(count=len(unfit), type=changed.type, named=named)
    return new
