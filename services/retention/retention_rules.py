"""A rule of retention: which rows go, and how long after which moment of theirs.

A row's time is compared with the database's clock alone, so the clocks of hosts may differ.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, Select, SQLColumnExpression, func

from core.settings import Settings
from core.settings.retention_days import Retained
from models.declarative import Model
from storage.purge import first

# Most batches take a fraction of a second, and the database ends a statement after ten.
_MAX_BATCH_ROWS = 10_000


@dataclass(frozen=True)
class Rule:
    """Rows that go some time after a moment of theirs."""

    name: str  # a table's, or of something in it
    model: type[Model]
    # How long after the moment: a name in the setting, or a time that is part of a promise.
    period: Retained | timedelta
    # When that is, for people: `after its end`.
    words: str
    # A column with an index. None: what is overdue can't be counted.
    moment: SQLColumnExpression[Any] | None = None
    only: tuple[ColumnElement[bool], ...] = ()
    # Without an index on the moment: the oldest rows come first in the order of these columns, from
    # the condition on.
    oldest_by: tuple[SQLColumnExpression[Any], ...] = ()
    oldest_from: tuple[ColumnElement[bool], ...] = ()
    # Whether the purge deletes such rows; other upkeep does the rest.
    is_purged: bool = True
    # How much longer such a row may be there: what is dropped by the partition goes with others.
    longer: timedelta = timedelta(0)
    max_batch_rows: int = _MAX_BATCH_ROWS

    def age(self, settings: Settings) -> timedelta:
        if isinstance(self.period, Retained):
            return timedelta(days=settings.retention[self.period])
        return self.period


@dataclass(frozen=True)
class PastRows:
    """The first rows of a rule that are past their time: in these places, if they also fit."""

    places: Select[Any]
    conditions: tuple[ColumnElement[bool], ...]


def past(rule: Rule, age: timedelta, *, limit: int) -> PastRows:
    assert rule.moment is not None
    conditions = (rule.moment < func.now() - age, *rule.only)
    if rule.oldest_by:
        oldest = first(rule.model, *rule.oldest_from, order=rule.oldest_by, limit=limit)
        return PastRows(oldest, conditions)
    return PastRows(first(rule.model, *conditions, order=(rule.moment,), limit=limit), ())
