"""What should be gone: rows that are past their time by more than two rounds of upkeep."""

from collections.abc import Mapping

from sqlalchemy import Select, func, literal, select, union_all

from core.settings import Settings
from services.retention.kept import RULES
from services.retention.purging import PURGE
from services.retention.retention_rules import Rule, past
from storage.database import Database, Statement
from storage.purge import among

_MAX_COUNTED = 1_000
_SLACK = 2 * PURGE.every


class OverdueRows:
    """Counts overdue rows by their rule, each up to a thousand.

    It costs as much as it counts: nothing, as a rule.
    """

    def __init__(self, settings: Settings) -> None:
        counts = [_count(rule, settings) for rule in RULES if rule.moment is not None]
        self._statement = Statement(union_all(*counts))

    def count(self, database: Database) -> Mapping[str, int]:
        """Raises ``psycopg2.Error``."""
        return dict(database.rows(self._statement))


def _count(rule: Rule, settings: Settings) -> Select[str, int]:
    rows = past(rule, rule.age(settings) + rule.longer + _SLACK, limit=_MAX_COUNTED)
    query = select(literal(rule.name), func.count()).select_from(rule.model)
    return query.where(among(rule.model, rows.places), *rows.conditions)
