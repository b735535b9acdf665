"""Changes the type of an owner's field, and converts the values that members have for the field.

A single transaction does both. It locks all lists of the owner, so that no concurrent transaction
writes a value of the old type.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import psycopg2.errors
from sqlalchemy import select, text

from core.errors import DomainError
from core.errors import mailing as errors
from core.ids import AccountId
from models import FieldType, MailingList, MemberField
from services.subscriptions import fields
from services.subscriptions.fields import FieldValue
from services.subscriptions.imports.columns.column_forms import ColumnForms
from services.subscriptions.imports.columns.field_values import abbreviate_cell, parse_value
from services.subscriptions.members import locks
from storage.expected_errors import raise_instead
from storage.unit_of_work import UnitOfWork

# The maximum number of distinct values that can be converted to a new type. Converting 50,000
# distinct values takes one or two seconds.
MAX_DISTINCT_VALUES = 50_000
# The maximum number of invalid values that an error message quotes.
_MAX_NAMED_VALUES = 3
# An SQL condition for rows whose stored filter uses the field ``:name``.
_IS_IN_FILTER = """jsonb_path_exists(filter, 'strict $.** ? (@.field == $name)',
    jsonb_build_object('name', CAST(:name AS text)), true)"""
_FIND_USES = text(f"""
SELECT 'segment' AS kind, id, name FROM segments WHERE list_id = ANY (:list_ids) AND {_IS_IN_FILTER}
UNION ALL
SELECT 'bulk_action', id, action FROM bulk_actions
WHERE list_id = ANY (:list_ids) AND status = 'running' AND {_IS_IN_FILTER}
UNION ALL
SELECT 'export', id, kind FROM exports
WHERE list_id = ANY (:list_ids) AND finished_at IS NULL AND {_IS_IN_FILTER}
UNION ALL
SELECT 'import', id, coalesce(filename, '') FROM imports
WHERE list_id = ANY (:list_ids) AND status = 'running' AND NOT dry_run
ORDER BY kind DESC, id
""")  # noqa: S608
# Values in the table ``import_changes`` are converted too, because the undo of an import restores
# them.
_CHANGES = "import_changes WHERE import_id IN (SELECT id FROM imports WHERE user_id = :owner_id)"
_FIND_VALUES = text(f"""
SELECT DISTINCT value FROM (
    SELECT fields -> :key AS value FROM subscriptions
    WHERE list_id = ANY (:list_ids) AND fields ? :key
    UNION ALL SELECT fields_before -> :key FROM {_CHANGES} AND fields_before ? :key
    UNION ALL SELECT fields_after -> :key FROM {_CHANGES} AND fields_after ? :key
) AS held WHERE jsonb_typeof(value) <> 'null' LIMIT :most
""")  # noqa: S608
_NEW_VALUES = "jsonb_to_recordset(CAST(:pairs AS jsonb)) AS new (before jsonb, after jsonb)"
# Don't change ``updated_at``, because the undo of an import skips members whose ``updated_at`` has
# changed.
_CONVERT_MEMBERS = text(f"""
UPDATE subscriptions AS m SET fields = m.fields || jsonb_build_object(:key, new.after)
FROM {_NEW_VALUES}
WHERE list_id = ANY (:list_ids) AND m.fields ? :key AND m.fields -> :key = new.before
""")  # noqa: S608
_CONVERT_IMPORT_CHANGES = [
    text(f"""
UPDATE import_changes AS c SET {column} = c.{column} || jsonb_build_object(:key, new.after)
FROM {_NEW_VALUES} WHERE c.import_id IN (SELECT id FROM imports WHERE user_id = :owner_id)
    AND c.{column} ? :key AND c.{column} -> :key = new.before
""")  # noqa: S608
    for column in ("fields_before", "fields_after")
]


def change_field_and_type(
    uow: UnitOfWork, account_id: AccountId, field_id: int, values: Mapping[str, Any]
) -> MemberField:
    """Change a field. If the type changes, convert members' values as an import converts cells.

    Raises ``field.values_unfit`` if any value doesn't fit.
    """
    columns = fields.validate_columns(values)
    field = fields.get_field(uow, account_id, field_id, lock=True)
    type_ = FieldType(columns.get("type", field.type))
    if type_ != field.type:
        columns.setdefault("choices", [])
        new_field = MemberField(
            key=field.key, label=field.label, type=type_, choices=columns["choices"]
        )
        _convert_values(uow, field, new_field)
    return fields.change_field(uow, account_id, field_id, columns)


def _convert_values(uow: UnitOfWork, field: MemberField, new_field: MemberField) -> None:
    query = select(MailingList.id).where(MailingList.user_id == field.user_id)
    list_ids = list(uow.session.scalars(query.order_by(MailingList.id)))
    with locks.limit_lock_waits(uow):
        for list_id in list_ids:
            locks.lock_list(uow, list_id)
    values = {"list_ids": list_ids, "owner_id": field.user_id, "key": str(field.id)}
    name = {"name": f"fields.{field.id}", "list_ids": list_ids}
    if uses := [row._asdict() for row in uow.session.execute(_FIND_USES, name)]:
        raise errors.FIELD_IN_USE(
            key=field.key, uses=errors.format_uses(uses), facts={"used_by": uses}
        )
    too_many = errors.FIELD_TOO_MANY_VALUES(most=MAX_DISTINCT_VALUES)
    with raise_instead(psycopg2.errors.QueryCanceled, too_many):
        query_values = {**values, "most": MAX_DISTINCT_VALUES + 1}
        old_values = uow.session.scalars(_FIND_VALUES, query_values).all()
        if len(old_values) > MAX_DISTINCT_VALUES:
            raise too_many
        new_values = _parse_values(new_field, old_values)
        pairs = [
            {"before": old, "after": new} for old, new in zip(old_values, new_values, strict=True)
        ]
        values["pairs"] = orjson.dumps(pairs).decode()
        for statement in (_CONVERT_MEMBERS, *_CONVERT_IMPORT_CHANGES):
            uow.session.execute(statement, values)


def _parse_values(
    new_field: MemberField, old_values: Sequence[FieldValue]
) -> list[FieldValue | None]:
    """Raise ``field.values_unfit`` if any value doesn't fit."""
    texts = [fields.format_value(each) for each in old_values]
    forms = ColumnForms()
    dates, numbers = ([0] * (new_field.type == each) for each in (FieldType.DATE, FieldType.NUMBER))
    forms.learn(dates, numbers, [[each] for each in texts])
    new_values: list[FieldValue | None] = []
    for written in texts:
        try:
            new_values.append(parse_value(written, new_field, forms, 0))
        except ValueError:
            new_values.append(None)
    invalid_texts = [
        abbreviate_cell(written)
        for written, value in zip(texts, new_values, strict=True)
        if value is None
    ]
    try:
        forms.find_notations([new_field.label])
    except DomainError:
        # Treat all dates as invalid, because none of the dates shows whether the day or the month
        # comes first.
        invalid_texts = [abbreviate_cell(each) for each in texts]
    if invalid_texts:
        named = ", ".join(map(repr, invalid_texts[:_MAX_NAMED_VALUES]))
        raise errors.FIELD_VALUES_UNFIT(count=len(invalid_texts), type=new_field.type, named=named)
    return new_values
