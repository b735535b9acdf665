"""Counts overdue rows, which a purge should already have deleted from the database."""

from collections.abc import Mapping
from functools import cache

from sqlalchemy import Interval, Select, and_, bindparam, func, literal, select, union_all

from services.privacy.expired_rows import PURGE
from services.privacy.retention import RULES, Rule
from storage.database import Statement
from storage.resources import Resources

_MAX_COUNTED = 1_000
# An expired row counts as overdue if two runs of the purge haven't deleted it.
_SLACK = 2 * PURGE.every
# Maps the names of SQL parameters to retention rules. The value of each parameter is the age at
# which the retention rule considers a row overdue.
_RULES: Mapping[str, Rule] = {
    f"age_{number}": rule for number, rule in enumerate(RULES) if rule.moment is not None
}


def count_overdue_rows(resources: Resources) -> Mapping[str, int]:
    """Return the number of overdue rows per retention rule, at most a thousand each."""
    ages = {name: rule.age(resources.settings) + _SLACK for name, rule in _RULES.items()}
    return dict(resources.database.rows(_count_statement(), **ages))


@cache
def _count_statement() -> Statement:
    """Return a cached SQL statement, because compiling it takes longer than running it."""
    return Statement(union_all(*(_count_rule(name, rule) for name, rule in _RULES.items())))


def _count_rule(age: str, rule: Rule) -> Select[str, int]:
    """Return a query that counts overdue rows among the oldest rows of a retention rule.

    ``age`` is the name of the SQL parameter that contains the age of overdue rows.
    """
    assert rule.moment is not None
    is_overdue = and_(rule.moment < func.now() - bindparam(age, type_=Interval), *rule.only)
    query = select(is_overdue.label("is_past")).select_from(rule.model)
    # Sort in the order of an index, because Postgres might otherwise read more rows than the limit.
    if rule.oldest_by:
        query = query.where(*rule.oldest_from).order_by(*rule.oldest_by)
    else:
        query = query.where(is_overdue).order_by(rule.moment)
    oldest = query.limit(_MAX_COUNTED).subquery()
    return select(literal(rule.name), func.count()).where(oldest.c.is_past)
