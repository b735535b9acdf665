"""Counts the rows that should have been deleted already."""

from collections.abc import Mapping
from functools import cache

from sqlalchemy import Interval, Select, and_, bindparam, func, literal, select, union_all

from services.privacy.expired_rows import PURGE
from services.privacy.retention import RULES, Rule
from storage.database import Statement
from storage.resources import Resources

_MAX_COUNTED = 1_000
# A row is overdue if two runs of the purge should have deleted it.
_SLACK = 2 * PURGE.every
# Maps the name of a statement parameter to the rule whose age is the parameter's value.
_RULES: Mapping[str, Rule] = {
    f"age_{number}": rule for number, rule in enumerate(RULES) if rule.moment is not None
}


def count_overdue_rows(resources: Resources) -> Mapping[str, int]:
    """Return the number of overdue rows per rule. Raises ``psycopg2.Error``.

    The statement reads and counts at most a thousand rows per rule.
    """
    ages = {name: rule.age(resources.settings) + _SLACK for name, rule in _RULES.items()}
    return dict(resources.database.rows(_count_statement(), **ages))


@cache
def _count_statement() -> Statement:
    """Return the statement that counts all overdue rows.

    The statement is cached, because compiling the statement takes longer than running it.
    """
    return Statement(union_all(*(_count_rule(name, rule) for name, rule in _RULES.items())))


def _count_rule(age: str, rule: Rule) -> Select[str, int]:
    """Return the query that counts the overdue rows among the oldest rows of a rule.

    ``age`` is the name of the SQL parameter for the retention period of the rule.
    """
    assert rule.moment is not None
    is_overdue = and_(rule.moment < func.now() - bindparam(age, type_=Interval), *rule.only)
    query = select(is_overdue.label("is_past")).select_from(rule.model)
    # An index has this order, so Postgres reads only the rows up to the limit, even if the table's
    # statistics are wrong.
    if rule.oldest_by:
        query = query.where(*rule.oldest_from).order_by(*rule.oldest_by)
    else:
        query = query.where(is_overdue).order_by(rule.moment)
    oldest = query.limit(_MAX_COUNTED).subquery()
    return select(literal(rule.name), func.count()).where(oldest.c.is_past)
