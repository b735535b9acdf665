"""What should be gone: rows that are past their time by more than two rounds of upkeep."""

from collections.abc import Mapping
from functools import cache

from sqlalchemy import Interval, Select, and_, bindparam, func, literal, select, union_all

from core.settings import Settings
from services.retention.kept import RULES
from services.retention.purging import PURGE
from services.retention.retention_rules import Rule
from storage.database import Database, Statement

_MAX_COUNTED = 1_000
_SLACK = 2 * PURGE.every
# By the names of their ages in the statement.
_RULES: Mapping[str, Rule] = {
    f"age_{number}": rule for number, rule in enumerate(RULES) if rule.moment is not None
}


class OverdueRows:
    """Counts overdue rows by their rule, each up to a thousand.

    It reads no more rows than that of any table, and none of most.
    """

    def __init__(self, settings: Settings) -> None:
        self._ages = {
            name: rule.age(settings) + rule.longer + _SLACK for name, rule in _RULES.items()
        }

    def count(self, database: Database) -> Mapping[str, int]:
        """Raises ``psycopg2.Error``."""
        return dict(database.rows(_counts(), **self._ages))


@cache
def _counts() -> Statement:
    """To write it takes longer than to run it."""
    return Statement(union_all(*(_count(name, rule) for name, rule in _RULES.items())))


def _count(age: str, rule: Rule) -> Select[str, int]:
    """Of the oldest rows of a rule, as many as are past their time."""
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
