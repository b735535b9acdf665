"""Counts how many members join and leave each list, to check the product's daily figures."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import date, timedelta

from core import clock
from services.subscriptions import daily_figures
from services.subscriptions.daily_figures import DayRange, FiguresBy, MemberFigures
from storage.resources import Resources
from tests.support.lists.model import ACTIVE
from tests.support.lists.observed import Observed

Numbers = tuple[int, int]


def read_figures(resources: Resources, list_id: int, by: FiguresBy) -> dict[str, MemberFigures]:
    today = clock.now().date()
    days = DayRange(today - timedelta(days=366), today + timedelta(days=1))
    with resources.unit_of_work() as uow:
        return {each.key: each for each in daily_figures.read_figures(uow, list_id, days, by)}


@dataclass
class Tally:
    """For each list, how often members have joined it, and how often members have left it."""

    joined: Counter[int] = field(default_factory=Counter)
    left: Counter[int] = field(default_factory=Counter)

    def note(self, before: Observed, after: Observed) -> None:
        """Count the members who joined or left through one action.

        Imports write no events for new members, and an undo writes none for the members that it
        deletes. Members whom an undo removes don't count as joined.
        """
        for pair in before.records.keys() | after.records.keys():
            new_events = after.events.get(pair, [])[len(before.events.get(pair, [])) :]
            steps = [
                (each.status_after == ACTIVE) - (each.status_before == ACTIVE)
                for each in new_events
            ]
            undone = sum(
                step
                for step, each in zip(steps, new_events, strict=True)
                if each.action == "import_undone"
            )
            without_event = _is_active(after, pair) - _is_active(before, pair) - sum(steps)
            self.joined[pair[0]] += steps.count(1) + without_event + undone
            self.left[pair[0]] += steps.count(-1) + undone

    def require_figures(self, resources: Resources, seen: Observed) -> None:
        for list_id in seen.counts:
            expected = (self.joined[list_id], self.left[list_id])
            figures = {by: read_figures(resources, list_id, by) for by in FiguresBy}
            assert _sum(figures[FiguresBy.DAY]) == expected
            assert _sum(figures[FiguresBy.SOURCE]) == expected
            active = [each for each in seen.records.values() if each.list_id == list_id]
            active = [each for each in active if each.status == ACTIVE]
            for by, active_counts in (
                (FiguresBy.SOURCE, Counter(each.source for each in active)),
                (FiguresBy.TIER, Counter(each.type for each in active)),
            ):
                net = {key: each.net for key, each in figures[by].items() if each.net}
                assert net == active_counts, by


def _is_active(seen: Observed, pair: tuple[int, int]) -> bool:
    record = seen.records.get(pair)
    return record is not None and record.status == ACTIVE


def _sum(figures: dict[str, MemberFigures]) -> Numbers:
    joined = sum(each.joined for each in figures.values())
    left = sum(each.left for each in figures.values())
    return joined, left


def read_daily_totals(resources: Resources, list_id: int) -> dict[date, Numbers]:
    """Return how many members joined and left on each day, without days that have no changes."""
    return {
        date.fromisoformat(key): (each.joined, each.left)
        for key, each in read_figures(resources, list_id, FiguresBy.DAY).items()
        if each.joined or each.left
    }
