"""One condition of a filter: a name, an operator, and what the name is compared with.

Text is compared without case, by the full case folding of Unicode, as ``str.casefold`` has it.
Postgres does the same in a collation of its own, so that the locale of the database has no part in
it. Values are bound, and never a part of a statement's text.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, FromClause, collate, func, literal, literal_column

from models import Subscription
from services.mailing.filters.filter_names import FilterName, Operator
from services.mailing.filters.values import Value

Condition = ColumnElement[bool]

# No fields or no tags: in the words of the conditions of partial indexes.
NONE: ColumnElement[Any] = literal_column("'{}'")
_FOLDING = "pg_unicode_fast"


@dataclass(frozen=True)
class Members:
    """The rows that conditions are about.

    Attributes:
        rows: the table of subscriptions, or some of its rows with all of its columns.
        tag_ids: of the tags that a filter names and that the list has, by those names.
    """

    rows: FromClause = Subscription.__table__
    tag_ids: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Comparison:
    """It is never ``is_not``, which is the complement of ``is``.

    Attributes:
        values: several for ``in``, none for ``exists``, else one.
    """

    name: FilterName
    operator: Operator
    values: tuple[Value, ...] = ()


def folded(value: ColumnElement[str]) -> ColumnElement[str]:
    return func.casefold(collate(value, _FOLDING))


def pattern(operator: Operator, value: str) -> str:
    """For ``LIKE``, which has wildcards of its own."""
    escaped = re.sub(r"([\\%_])", r"\\\1", value)
    return f"%{escaped}%" if operator is Operator.CONTAINS else f"{escaped}%"


def of_text(comparison: Comparison, column: ColumnElement[str]) -> Condition:
    """For a text that is stored with its case."""
    operator, values = comparison.operator, [str(value) for value in comparison.values]
    if operator in {Operator.CONTAINS, Operator.BEGINS}:
        return folded(column).like(folded(literal(pattern(operator, values[0]))))
    return folded(column).in_([folded(literal(value)) for value in values])
