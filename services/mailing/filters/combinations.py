"""Conditions that are combined: all of them, any of them, or none of one.

SQL knows of no value beside true and false: a condition on a missing name is neither. Where that
would matter, below a complement, it counts as false, so that ``not`` is the complement.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from sqlalchemy import and_, false, func, not_, or_

from models import SubscriptionStatus
from services.mailing.filters import column_conditions, field_conditions
from services.mailing.filters.comparisons import Comparison, Condition, Members
from services.mailing.filters.filter_names import STATUS


class Node(Protocol):
    """A filter or a part of it."""

    def sql(self, members: Members) -> Condition: ...

    def indexed(self, members: Members) -> Condition | None:
        """What is true of every member of whom the node is, by an index; ``None``: nothing is."""

    def is_true_of(self, status: SubscriptionStatus) -> bool | None:
        """Of a member with this status; ``None`` where more decides than the status."""

    def comparisons(self) -> Iterator[Comparison]: ...


@dataclass(frozen=True)
class One:
    comparison: Comparison

    def sql(self, members: Members) -> Condition:
        if self.comparison.name.field_id is not None:
            return field_conditions.sql(self.comparison, members)
        return column_conditions.sql(self.comparison, members)

    def indexed(self, members: Members) -> Condition | None:
        if self.comparison.name.field_id is not None:
            return field_conditions.indexed(self.comparison, members)
        return column_conditions.indexed(self.comparison, members)

    def is_true_of(self, status: SubscriptionStatus) -> bool | None:
        return status in self.comparison.values if self.comparison.name == STATUS else None

    def comparisons(self) -> Iterator[Comparison]:
        yield self.comparison


@dataclass(frozen=True)
class Every:
    """``all``"""

    parts: tuple[Node, ...]

    def sql(self, members: Members) -> Condition:
        return and_(*(part.sql(members) for part in self.parts))

    def indexed(self, members: Members) -> Condition | None:
        known = [found for part in self.parts if (found := part.indexed(members)) is not None]
        return and_(*known) if known else None

    def is_true_of(self, status: SubscriptionStatus) -> bool | None:
        known = {part.is_true_of(status) for part in self.parts}
        return False if False in known else None if None in known else True

    def comparisons(self) -> Iterator[Comparison]:
        for part in self.parts:
            yield from part.comparisons()


@dataclass(frozen=True)
class Either:
    """``any``"""

    parts: tuple[Node, ...]

    def sql(self, members: Members) -> Condition:
        return or_(*(part.sql(members) for part in self.parts))

    def indexed(self, members: Members) -> Condition | None:
        known = [found for part in self.parts if (found := part.indexed(members)) is not None]
        return or_(*known) if len(known) == len(self.parts) else None

    def is_true_of(self, status: SubscriptionStatus) -> bool | None:
        known = {part.is_true_of(status) for part in self.parts}
        return True if True in known else None if None in known else False

    def comparisons(self) -> Iterator[Comparison]:
        for part in self.parts:
            yield from part.comparisons()


@dataclass(frozen=True)
class Complement:
    """``not``"""

    part: Node

    def sql(self, members: Members) -> Condition:
        return not_(func.coalesce(self.part.sql(members), false()))

    def indexed(self, _: Members) -> Condition | None:
        return None

    def is_true_of(self, status: SubscriptionStatus) -> bool | None:
        known = self.part.is_true_of(status)
        return None if known is None else not known

    def comparisons(self) -> Iterator[Comparison]:
        yield from self.part.comparisons()
