"""What should be gone: rows that are past their time by more than two rounds of upkeep."""

from collections.abc import Mapping

from sqlalchemy import func, literal, select, union_all

from core.settings import Settings
from services.retention.kept import RULES
from services.retention.purging import PURGE
from services.retention.rules import past
from storage.purge import among
from storage.unit_of_work import UnitOfWork

_MAX_COUNTED = 1_000
_SLACK = 2 * PURGE.every


def count_overdue(uow: UnitOfWork, settings: Settings) -> Mapping[str, int]:
    """The number of overdue rows by their rule, each up to a thousand.

    It costs as much as it counts: nothing, as a rule.
    """
    counts = []
    for rule in RULES:
        if rule.moment is not None:
            rows = past(rule, rule.age(settings) + _SLACK, limit=_MAX_COUNTED)
            counts.append(
                select(literal(rule.name), func.count())
                .select_from(rule.model)
                .where(among(rule.model, rows.places), *rows.conditions)
            )
    return dict(uow.session.execute(union_all(*counts)).tuples().all())
