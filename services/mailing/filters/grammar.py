"""A filter as JSON, read strictly: what is not in the grammar is refused, with its place."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from core.errors import FieldProblem
from core.refusals.mailing import FILTER_INVALID
from services.mailing.filters import values
from services.mailing.filters.combinations import Complement, Either, Every, Node, One
from services.mailing.filters.comparisons import Comparison
from services.mailing.filters.filter_names import FilterName, Operator

# Objects that stand inside of one another, the innermost condition included.
MAX_DEPTH = 5
MAX_CONDITIONS = 50
# Of one condition with `in`.
MAX_VALUES = 100


def parse(written: object, names: Mapping[str, FilterName]) -> Node:
    """Raises ``filter.invalid``, which names the place, such as ``filter.all[2].any[0].is``."""
    return _Reader(names).node(written, "filter", 1)


def _refuse(place: str, code: str, rule: str) -> NoReturn:
    raise FILTER_INVALID(place=place, rule=rule, problems=(FieldProblem(place, code, rule),))


@dataclass
class _Reader:
    names: Mapping[str, FilterName]
    conditions: int = 0

    def node(self, written: object, place: str, depth: int) -> Node:
        if not isinstance(written, dict):
            _refuse(place, "type", "must be an object")
        if depth > MAX_DEPTH:
            _refuse(place, "too_deep", f"stands in more than {MAX_DEPTH - 1} others")
        if "field" in written:
            return self._condition(written, place)
        match list(written):
            case ["all"]:
                return Every(self._parts(written["all"], f"{place}.all", depth))
            case ["any"]:
                return Either(self._parts(written["any"], f"{place}.any", depth))
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
        name = self._name(written["field"], f"{place}.field")
        others = [key for key in written if key != "field"]
        if len(others) != 1:
            _refuse(place, "form", "has one operator beside field")
        (word,) = others
        if word not in name.operators:
            able = ", ".join(name.operators)
            # What a caller sent is not repeated at any length.
            shown = word if word in set(Operator) else "operator"
            _refuse(f"{place}.{shown}", "operator", f"{name.name} goes with {able}")
        return _compared(name, Operator(word), written[word], f"{place}.{word}")

    def _name(self, written: object, place: str) -> FilterName:
        found = self.names.get(written) if isinstance(written, str) else None
        if found is None:
            _refuse(place, "unknown", f"is not known; there are {', '.join(self.names)}")
        return found


def _compared(name: FilterName, operator: Operator, written: object, place: str) -> Node:
    match operator:
        case Operator.EXISTS:
            if not isinstance(written, bool):
                _refuse(place, "type", "must be true or false")
            has_one = One(Comparison(name, operator))
            return has_one if written else Complement(has_one)
        case Operator.IN:
            if not isinstance(written, list) or not 0 < len(written) <= MAX_VALUES:
                _refuse(place, "type", f"must be a list of 1 to {MAX_VALUES} values")
            several = [_value(name, each, f"{place}[{i}]") for i, each in enumerate(written)]
            return One(Comparison(name, operator, tuple(several)))
        case Operator.IS_NOT:
            value = _value(name, written, place)
            return Complement(One(Comparison(name, Operator.IS, (value,))))
    return One(Comparison(name, operator, (_value(name, written, place),)))


def _value(name: FilterName, written: object, place: str) -> values.Value:
    try:
        return values.read(name, written)
    except values.WrongValue as error:
        _refuse(place, "type", str(error))
