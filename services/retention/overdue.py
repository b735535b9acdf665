"""What should be gone: rows that are past their time by more than two rounds of upkeep."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Select, func, literal, select, union_all

from core.settings import Settings
from services.retention.kept import RULES
from services.retention.purging import PURGE
from services.retention.rules import Rule, past
from storage.purge import among
from storage.unit_of_work import UnitOfWork

_MAX_COUNTED = 1_000
_SLACK = 2 * PURGE.every


def count_overdue(uow: UnitOfWork, settings: Settings) -> Mapping[str, int]:
    """The number of overdue rows by their rule, each up to a thousand.

    It costs as much as it counts: nothing, as a rule.
    """
    counts = [_count(rule, settings) for rule in RULES if rule.moment is not None]
    return {found.rule: found.rows for found in uow.session.execute(union_all(*counts))}


def _count(rule: Rule, settings: Settings) -> Select[Any]:
    rows = past(rule, rule.age(settings) + rule.longer + _SLACK, limit=_MAX_COUNTED)
    query = select(literal(rule.name).label("rule"), func.count().label("rows")).select_from(
        rule.model
    )
    return query.where(among(rule.model, rows.places), *rows.conditions)
