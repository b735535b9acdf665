"""Counts the rows that should have been deleted already."""

from collections.abc import Mapping
from functools import cache

from sqlalchemy import (
    Interval,
    Select,
    and_,
    bindparam,
    func,
    literal,
    select,
    union_all,
)

from services.privacy.expired_rows import PURGE
from services.privacy.kept import RULES, Rule
from storage.database import Statement
from storage.resources import Resources

_MAX_COUNTED = 1_000
_SLACK = 2 * PURGE.every
# By the names of their ages in the statement.
_RULES: Mapping[str, Rule] = {
    f"age_{number}": rule for number, rule in enumerate(RULES) if rule.moment is not None
}


def count_overdue(resources: Resources) -> Mapping[str, int]:
    """Count overdue rows by their rule, each up to a thousand, and read no more of a table.

    Raises ``psycopg2.Error``.
    """
    ages = {name: rule.age(resources.settings) + _SLACK for name, rule in _RULES.items()}
    return dict(resources.database.rows(_counts(), **ages))


@cache
def _counts() -> Statement:
    """To write it takes longer than to run it."""
    return Statement(union_all(*(_count(name, rule) for name, rule in _RULES.items())))


def _count(age: str, rule: Rule) -> Select[str, int]:
    """Return, of the oldest rows of a rule, as many as are past their time."""
    assert rule.moment is not None
    is_past = and_(rule.moment < func.now() - bindparam(age, type_=Interval), *rule.only)
    query = select(is_past.label("is_past")).select_from(rule.model)
    # The order is that of an index, so that nothing else is read, whatever the planner takes the
    # table to hold.
    if rule.oldest_by:
        query = query.where(*rule.oldest_from).order_by(*rule.oldest_by)
    else:
        query = query.where(is_past).order_by(rule.moment)
    oldest = query.limit(_MAX_COUNTED).subquery()
    return select(literal(rule.name), func.count()).where(oldest.c.is_past)
