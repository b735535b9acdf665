"""Parses filters from JSON, and rejects invalid filters.

A member who doesn't match a filter must match the filter's negation. An SQL comparison with a
missing value results in NULL, so ``Negation`` treats NULL as false.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import NoReturn

from sqlalchemy import and_, false, func, not_, or_

from core import clock
from core.errors import FieldProblem
from core.errors.mailing import FILTER_INVALID
from models import MemberEngagement, SubscriptionStatus
from services.subscriptions.filters import engagement_conditions, names
from services.subscriptions.filters.conditions import Comparison, Condition, Members
from services.subscriptions.filters.names import ENGAGEMENT_NAMES, FilterName, Operator

# The maximum depth of nested filters, including the innermost condition.
MAX_DEPTH = 5
MAX_CONDITIONS = 50
# The maximum number of values for the operator ``in``.
MAX_VALUES_PER_CONDITION = 100
MAX_VALUES_PER_FILTER = 500
_SHORT_WORD = re.compile(r"\w{1,32}", re.ASCII)


@dataclass(frozen=True)
class Combination:
    needs_all: bool
    parts: "tuple[Node, ...]"

    def build_condition(self, members: Members) -> Condition:
        combine = and_ if self.needs_all else or_
        return combine(*(part.build_condition(members) for part in self.parts))

    def build_indexed_condition(self, members: Members) -> Condition | None:
        possible_conditions = [part.build_indexed_condition(members) for part in self.parts]
        conditions = [each for each in possible_conditions if each is not None]
        if self.needs_all:
            return and_(*conditions) if conditions else None
        return or_(*conditions) if len(conditions) == len(self.parts) else None

    def is_true_of(self, status: SubscriptionStatus) -> bool | None:
        results = {part.is_true_of(status) for part in self.parts}
        # A filter with ``all`` is false if any part is false. A filter with ``any`` is true if any
        # part is true.
        decisive_result = not self.needs_all
        if decisive_result in results:
            return decisive_result
        return None if None in results else not decisive_result

    def comparisons(self) -> Iterator[Comparison]:
        for part in self.parts:
            yield from part.comparisons()


@dataclass(frozen=True)
class Negation:
    part: "Node"

    def build_condition(self, members: Members) -> Condition:
        return not_(func.coalesce(self.part.build_condition(members), false()))

    def build_indexed_condition(self, _: Members) -> Condition | None:
        return None

    def is_true_of(self, status: SubscriptionStatus) -> bool | None:
        result = self.part.is_true_of(status)
        return None if result is None else not result

    def comparisons(self) -> Iterator[Comparison]:
        yield from self.part.comparisons()


@dataclass(frozen=True)
class EngagementPart:
    """A part of a filter that compares only engagement.

    A single subquery compares all columns, because each subquery must find the row of each member.
    """

    part: "Node"

    @property
    def matches_missing_row(self) -> bool:
        """Return whether the part matches members whose engagement isn't recorded."""
        return self.part.is_true_of(SubscriptionStatus.REMOVED) is True

    def build_condition(self, members: Members) -> Condition:
        # If members without a row match, only a row that doesn't match excludes a member.
        part = Negation(self.part) if self.matches_missing_row else self.part
        matches_row = part.build_condition(Members(MemberEngagement.__table__))
        condition = engagement_conditions.has_row(
            matches_row, members.rows, members.list_id, members.engagement_mode
        )
        return not_(condition) if self.matches_missing_row else condition

    def build_indexed_condition(self, members: Members) -> Condition | None:
        if self.matches_missing_row:
            return None
        return engagement_conditions.build_indexed_condition(
            self.part.build_condition(Members(MemberEngagement.__table__)),
            members.rows,
            members.list_id,
            members.engagement_mode,
        )

    def is_true_of(self, status: SubscriptionStatus) -> bool | None:
        return self.part.is_true_of(status)

    def comparisons(self) -> Iterator[Comparison]:
        yield from self.part.comparisons()


# A parsed filter, or a part of a parsed filter.
Node = Comparison | Combination | Negation | EngagementPart


def parse_filter(
    written: object, names: Mapping[str, FilterName], today: date | None = None
) -> Node:
    """Name the invalid part in the error.

    ``today``: the day from which ``days_ago`` and ``anniversary`` count, or ``None`` for the
    current date in UTC.
    """
    node = _Parser(names, today or clock.now().date()).parse_node(written, "filter", 1)
    return _group_engagement(node)


def _group_engagement(node: Node) -> Node:
    """Combine the comparisons of engagement in each part of a filter."""
    if _has_only_engagement(node):
        return EngagementPart(node)
    if isinstance(node, Negation):
        return Negation(_group_engagement(node.part))
    if not isinstance(node, Combination):
        return node
    engagement = tuple(part for part in node.parts if _has_only_engagement(part))
    others = tuple(_group_engagement(part) for part in node.parts if part not in engagement)
    if engagement:
        others = (*others, EngagementPart(Combination(node.needs_all, engagement)))
    return Combination(node.needs_all, others)


def _has_only_engagement(node: Node) -> bool:
    return all(each.name in ENGAGEMENT_NAMES for each in node.comparisons())


def _raise_invalid(place: str, code: str, rule: str) -> NoReturn:
    raise FILTER_INVALID(place=place, rule=rule, problems=(FieldProblem(place, code, rule),))


@dataclass
class _Parser:
    """Parses a single filter, and counts its conditions and values."""

    names: Mapping[str, FilterName]
    today: date
    condition_count: int = 0
    value_count: int = 0

    def parse_node(self, written: object, place: str, depth: int) -> Node:
        if not isinstance(written, dict):
            _raise_invalid(place, "type", "must be an object")
        if depth > MAX_DEPTH:
            _raise_invalid(place, "too_deep", f"exceeds the limit of {MAX_DEPTH} nested levels")
        if "field" in written:
            return self._parse_condition(written, place)
        match list(written):
            case ["all" | "any" as word]:
                parts = self._parse_parts(written[word], f"{place}.{word}", depth)
                return Combination(word == "all", parts)
            case ["not"]:
                return Negation(self.parse_node(written["not"], f"{place}.not", depth + 1))
        _raise_invalid(
            place, "form", "must have exactly one of all, any and not, or field and one operator"
        )

    def _parse_parts(self, written: object, place: str, depth: int) -> tuple[Node, ...]:
        if not isinstance(written, list) or not 0 < len(written) <= MAX_CONDITIONS:
            _raise_invalid(place, "type", f"must be a list of 1 to {MAX_CONDITIONS} filters")
        return tuple(
            self.parse_node(part, f"{place}[{number}]", depth + 1)
            for number, part in enumerate(written)
        )

    def _parse_condition(self, written: dict[str, object], place: str) -> Node:
        self.condition_count += 1
        if self.condition_count > MAX_CONDITIONS:
            _raise_invalid(
                place, "too_many", f"exceeds the limit of {MAX_CONDITIONS} conditions per filter"
            )
        field = written["field"]
        name = self.names.get(field) if isinstance(field, str) else None
        if name is None:
            rule = f"must be one of {', '.join(self.names)}"
            _raise_invalid(f"{place}.field", "unknown", rule)
        words = [key for key in written if key != "field"]
        if len(words) != 1:
            _raise_invalid(place, "form", "must have field and exactly one operator")
        (word,) = words
        if word not in name.operators:
            supported = ", ".join(name.operators)
            # Quote an unknown operator only if it is a short word.
            place_word = word if _SHORT_WORD.fullmatch(word) else "operator"
            _raise_invalid(
                f"{place}.{place_word}", "operator", f"must be one of {supported} for {name.name}"
            )
        node = _parse_comparison(
            name, Operator(word), written[word], f"{place}.{word}", today=self.today
        )
        self.value_count += sum(len(each.values) for each in node.comparisons())
        if self.value_count > MAX_VALUES_PER_FILTER:
            rule = f"exceeds the limit of {MAX_VALUES_PER_FILTER} values per filter"
            _raise_invalid(f"{place}.{word}", "too_many", rule)
        return node


def _parse_comparison(
    name: FilterName, operator: Operator, written: object, place: str, *, today: date
) -> Node:
    match operator:
        case Operator.EXISTS:
            if not isinstance(written, bool):
                _raise_invalid(place, "type", "must be true or false")
            has_value = Comparison(name, operator)
            return has_value if written else Negation(has_value)
        case Operator.ANNIVERSARY:
            try:
                return Comparison(name, operator, (names.parse_anniversary(written, today=today),))
            except names.InvalidValue as error:
                _raise_invalid(place, "type", str(error))
        case Operator.IN:
            if not isinstance(written, list) or not 0 < len(written) <= MAX_VALUES_PER_CONDITION:
                rule = f"must be a list of 1 to {MAX_VALUES_PER_CONDITION} values"
                _raise_invalid(place, "type", rule)
            values = [_parse_value(name, each, f"{place}[{i}]") for i, each in enumerate(written)]
            return Comparison(name, operator, tuple(values))
        case Operator.IS_NOT:
            value = _parse_value(name, written, place, today)
            if name.name in {"bounced", "engagement_choice"}:
                # Replace "is not" a word by "is" one of the other words, because Postgres can't use
                # an index for "is not". The new condition finds the same members, because every
                # member has exactly one of the words.
                others = tuple(word for word in name.words if word != value)
                return Comparison(name, Operator.IN, others)
            return Negation(Comparison(name, Operator.IS, (value,)))
    return Comparison(name, operator, (_parse_value(name, written, place, today),))


def _parse_value(
    name: FilterName, written: object, place: str, today: date | None = None
) -> names.Value:
    try:
        return names.parse_value(name, written, today=today)
    except names.InvalidValue as error:
        _raise_invalid(place, "type", str(error))
