"""A filter as JSON, read strictly: what is not in the grammar is refused, with its place."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NoReturn

from sqlalchemy import and_, false, func, not_, or_

from core.errors import FieldProblem
from core.errors.mailing import FILTER_INVALID
from models import SubscriptionStatus
from services.subscriptions.filters import names
from services.subscriptions.filters.conditions import Comparison, Condition, Members
from services.subscriptions.filters.names import FilterName, Operator

# SQL knows of no value beside true and false: a condition on a missing name is neither. Where
# that would matter, below a complement, it counts as false, so that ``not`` is the complement.


@dataclass(frozen=True)
class Several:
    """``all`` or ``any``"""

    are_all: bool
    parts: "tuple[Node, ...]"

    def sql(self, members: Members) -> Condition:
        return (and_ if self.are_all else or_)(*(part.sql(members) for part in self.parts))

    def indexed(self, members: Members) -> Condition | None:
        known = [found for part in self.parts if (found := part.indexed(members)) is not None]
        if self.are_all:
            return and_(*known) if known else None
        return or_(*known) if len(known) == len(self.parts) else None

    def is_true_of(self, status: SubscriptionStatus) -> bool | None:
        known = {part.is_true_of(status) for part in self.parts}
        # A part that is false decides all, and a part that is true any.
        decides = not self.are_all
        return decides if decides in known else None if None in known else not decides

    def comparisons(self) -> Iterator[Comparison]:
        for part in self.parts:
            yield from part.comparisons()


@dataclass(frozen=True)
class Complement:
    """``not``"""

    part: "Node"

    def sql(self, members: Members) -> Condition:
        return not_(func.coalesce(self.part.sql(members), false()))

    def indexed(self, _: Members) -> Condition | None:
        return None

    def is_true_of(self, status: SubscriptionStatus) -> bool | None:
        known = self.part.is_true_of(status)
        return None if known is None else not known

    def comparisons(self) -> Iterator[Comparison]:
        yield from self.part.comparisons()


# A filter or a part of it.
Node = Comparison | Several | Complement

# Objects that stand inside of one another, the innermost condition included.
MAX_DEPTH = 5
MAX_CONDITIONS = 50
# The values of one condition with `in`.
MAX_VALUES = 100
MAX_VALUES_IN_ALL = 500


def parse(written: object, names: Mapping[str, FilterName]) -> Node:
    """Raises ``filter.invalid``, which names the place, such as ``filter.all[2].any[0].is``."""
    return _Reader(names).node(written, "filter", 1)


def _refuse(place: str, code: str, rule: str) -> NoReturn:
    raise FILTER_INVALID(place=place, rule=rule, problems=(FieldProblem(place, code, rule),))


@dataclass
class _Reader:
    names: Mapping[str, FilterName]
    conditions: int = 0
    values: int = 0

    def node(self, written: object, place: str, depth: int) -> Node:
        if not isinstance(written, dict):
            _refuse(place, "type", "must be an object")
        if depth > MAX_DEPTH:
            _refuse(place, "too_deep", f"stands in more than {MAX_DEPTH - 1} others")
        if "field" in written:
            return self._condition(written, place)
        match list(written):
            case ["all" | "any" as word]:
                return Several(word == "all", self._parts(written[word], f"{place}.{word}", depth))
            case ["not"]:
                return Complement(self.node(written["not"], f"{place}.not", depth + 1))
        _refuse(place, "form", "has either all, any or not alone, or field and one operator")

    def _parts(self, written: object, place: str, depth: int) -> tuple[Node, ...]:
        if not isinstance(written, list) or not 0 < len(written) <= MAX_CONDITIONS:
            _refuse(place, "type", f"must be a list of 1 to {MAX_CONDITIONS} filters")
        parts = enumerate(written)
        return tuple(self.node(part, f"{place}[{number}]", depth + 1) for number, part in parts)

    def _condition(self, written: dict[str, object], place: str) -> Node:
        self.conditions += 1
        if self.conditions > MAX_CONDITIONS:
            _refuse(
                place, "too_many", f"is one more than the {MAX_CONDITIONS} conditions there may be"
            )
        asked = written["field"]
        name = self.names.get(asked) if isinstance(asked, str) else None
        if name is None:
            _refuse(f"{place}.field", "unknown", f"is not known; there are {', '.join(self.names)}")
        others = [key for key in written if key != "field"]
        if len(others) != 1:
            _refuse(place, "form", "has one operator beside field")
        (word,) = others
        if word not in name.operators:
            able = ", ".join(name.operators)
            # An error repeats little of what a caller sent.
            shown = word if word in set(Operator) else "operator"
            _refuse(f"{place}.{shown}", "operator", f"{name.name} goes with {able}")
        found = _compared(name, Operator(word), written[word], f"{place}.{word}")
        self.values += sum(len(each.values) for each in found.comparisons())
        if self.values > MAX_VALUES_IN_ALL:
            rule = f"has more than what is left of the {MAX_VALUES_IN_ALL} values of a filter"
            _refuse(f"{place}.{word}", "too_many", rule)
        return found


def _compared(name: FilterName, operator: Operator, written: object, place: str) -> Node:
    match operator:
        case Operator.EXISTS:
            if not isinstance(written, bool):
                _refuse(place, "type", "must be true or false")
            has_one = Comparison(name, operator)
            return has_one if written else Complement(has_one)
        case Operator.IN:
            if not isinstance(written, list) or not 0 < len(written) <= MAX_VALUES:
                _refuse(place, "type", f"must be a list of 1 to {MAX_VALUES} values")
            several = [_value(name, each, f"{place}[{i}]") for i, each in enumerate(written)]
            return Comparison(name, operator, tuple(several))
        case Operator.IS_NOT:
            value = _value(name, written, place)
            return Complement(Comparison(name, Operator.IS, (value,)))
    return Comparison(name, operator, (_value(name, written, place),))


def _value(name: FilterName, written: object, place: str) -> names.Value:
    try:
        return names.read(name, written)
    except names.WrongValue as error:
        _refuse(place, "type", str(error))
