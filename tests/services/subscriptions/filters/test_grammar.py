from typing import Any

import pytest

from core.errors import DomainError, Kind
from models import FieldType, MemberField
from services.subscriptions.filters import grammar
from services.subscriptions.filters.names import build_filter_names

pytestmark = pytest.mark.tier("check")

FILTER_NAMES = build_filter_names(
    MemberField(id=number, key=kind.value, type=kind) for number, kind in enumerate(FieldType, 1)
)
ADA_FILTER = {"field": "name", "is": "Ada"}
FILTER_WITH_100_VALUES = {"field": "name", "in": ["x"] * 100}


def build_nested_filter(depth: int) -> dict[str, Any]:
    """Return a filter with this many nested objects."""
    nested_filter: dict[str, Any] = ADA_FILTER
    for _ in range(depth - 1):
        nested_filter = {"not": nested_filter}
    return nested_filter


INVALID_FILTERS: list[tuple[object, str, str]] = [
    (None, "filter", "type"),
    ([ADA_FILTER], "filter", "type"),
    ({}, "filter", "form"),
    ({"all": [ADA_FILTER], "any": [ADA_FILTER]}, "filter", "form"),
    ({"and": [ADA_FILTER]}, "filter", "form"),
    ({"not": ADA_FILTER, "field": "name"}, "filter.not", "operator"),
    ({"all": []}, "filter.all", "type"),
    ({"any": ADA_FILTER}, "filter.any", "type"),
    ({"not": [ADA_FILTER]}, "filter.not", "type"),
    (
        {"all": [ADA_FILTER, {"any": [{"field": "nmae", "is": "x"}]}]},
        "filter.all[1].any[0].field",
        "unknown",
    ),
    ({"field": "fields.gone", "is": "x"}, "filter.field", "unknown"),
    ({"field": ["name"], "is": "x"}, "filter.field", "unknown"),
    ({"field": "user_id", "is": 1}, "filter.field", "unknown"),
    ({"field": "name"}, "filter", "form"),
    ({**ADA_FILTER, "contains": "d"}, "filter", "form"),
    ({"field": "name", "equals": "%"}, "filter.equals", "operator"),
    ({"field": "name", "<b>": "%"}, "filter.operator", "operator"),
    ({"field": "name", "like\n": "%"}, "filter.operator", "operator"),
    ({"field": "name", "x" * 33: "%"}, "filter.operator", "operator"),
    ({"field": "name", "before": "x"}, "filter.before", "operator"),
    ({"field": "status", "exists": True}, "filter.exists", "operator"),
    ({"field": "tag", "contains": "x"}, "filter.contains", "operator"),
    ({"field": "fields.boolean", "in": [True]}, "filter.in", "operator"),
    ({"field": "status", "is": "gone"}, "filter.is", "type"),
    ({"field": "type", "in": ["gold", "free", 1]}, "filter.in[2]", "type"),
    ({"field": "name", "in": []}, "filter.in", "type"),
    ({"field": "name", "in": "Ada"}, "filter.in", "type"),
    ({"field": "name", "in": ["x"] * 101}, "filter.in", "type"),
    ({"field": "name", "is": 1}, "filter.is", "type"),
    ({"field": "name", "is": ""}, "filter.is", "type"),
    ({"field": "name", "is": "a\0"}, "filter.is", "type"),
    ({"field": "name", "is": "a\ud800"}, "filter.is", "type"),
    ({"field": "name", "is": "a" * 1001}, "filter.is", "type"),
    ({"field": "name", "exists": 1}, "filter.exists", "type"),
    ({"field": "tag", "is": "a,b"}, "filter.is", "type"),
    ({"field": "tag", "is": "a" * 41}, "filter.is", "type"),
    ({"field": "import_id", "is": True}, "filter.is", "type"),
    ({"field": "import_id", "is": "7"}, "filter.is", "type"),
    ({"field": "import_id", "is": 2**53}, "filter.is", "type"),
    ({"field": "email_enabled", "is": 1}, "filter.is", "type"),
    ({"field": "created_at", "after": 1767225600}, "filter.after", "type"),
    ({"field": "created_at", "after": "2026-02-30"}, "filter.after", "type"),
    ({"field": "created_at", "after": "2026-02-03T04:05:06"}, "filter.after", "type"),
    ({"field": "created_at", "after": "0001-01-01T00:00:00+14:00"}, "filter.after", "type"),
    ({"field": "created_at", "at_most": "9999-12-31"}, "filter.at_most", "type"),
    ({"field": "fields.date", "is": "2026-02-03T04:05:06Z"}, "filter.is", "type"),
    ({"field": "fields.date", "is": "2026-02-30"}, "filter.is", "type"),
    ({"field": "joined_at", "before": {"days_ago": -3651}}, "filter.before", "type"),
    ({"field": "joined_at", "before": {"days_ago": 3651}}, "filter.before", "type"),
    ({"field": "joined_at", "before": {"days_ago": 1.5}}, "filter.before", "type"),
    ({"field": "joined_at", "before": {"days_ago": True}}, "filter.before", "type"),
    ({"field": "joined_at", "before": {"days_ago": 1, "x": 1}}, "filter.before", "type"),
    ({"field": "joined_at", "before": {}}, "filter.before", "type"),
    ({"field": "fields.date", "in": [{"days_ago": 1}]}, "filter.in[0]", "type"),
    ({"field": "fields.number", "is": {"days_ago": 1}}, "filter.is", "type"),
    ({"field": "name", "is": {"days_ago": 1}}, "filter.is", "type"),
    *(
        ({"field": "joined_at", "anniversary": value}, "filter.anniversary", "type")
        for value in (-61, 61, 1.5, True, "7", None, [7], {"days_ago": 7}, "2026-11-21")
    ),
    *(
        ({"field": name, "anniversary": 0}, "filter.anniversary", "operator")
        for name in ("updated_at", "paid_expiry", "last_opened", "name", "tag")
    ),
    *(
        ({"field": f"fields.{kind}", "anniversary": 0}, "filter.anniversary", "operator")
        for kind in ("text", "number", "boolean", "choice")
    ),
    ({"field": "paid_expiry", "in": ["2026-11-21"]}, "filter.in", "operator"),
    ({"field": "paid_expiry", "exists": 1}, "filter.exists", "type"),
    ({"field": "bounced", "is": "medium"}, "filter.is", "type"),
    ({"field": "bounced", "exists": True}, "filter.exists", "operator"),
    ({"field": "fields.number", "at_least": "7"}, "filter.at_least", "type"),
    ({"field": "fields.number", "is": float("inf")}, "filter.is", "type"),
    ({"field": "fields.number", "is": True}, "filter.is", "type"),
    ({"field": "fields.choice", "is": None}, "filter.is", "type"),
    (build_nested_filter(6), "filter.not.not.not.not.not", "too_deep"),
    ({"all": [{"any": [ADA_FILTER] * 26}] * 2}, "filter.all[1].any[24]", "too_many"),
    (
        {"all": [FILTER_WITH_100_VALUES] * 5 + [{"not": ADA_FILTER}]},
        "filter.all[5].not.is",
        "too_many",
    ),
]


@pytest.mark.parametrize(("filter_", "path", "code"), INVALID_FILTERS)
def test_filter_outside_the_grammar_is_rejected_with_the_path_of_the_error(
    filter_: object, path: str, code: str
) -> None:
    with pytest.raises(DomainError) as error:
        grammar.parse_filter(filter_, FILTER_NAMES)
    assert error.value.kind is Kind.MALFORMED
    assert error.value.code == "filter.invalid"
    [problem] = error.value.problems
    assert (problem.field, problem.code) == (path, code)
    assert error.value.message == f"{path}: {problem.message}"


@pytest.mark.parametrize(
    "filter_",
    [
        build_nested_filter(5),
        {"all": [ADA_FILTER] * 50},
        {"all": [{"any": [ADA_FILTER] * 25}] * 2},
        {"all": [FILTER_WITH_100_VALUES] * 5},
        {"field": "name", "is": "a" * 1000},
        {"field": "created_at", "before": "1970-01-01"},
        {"field": "created_at", "at_most": "9998-12-31T23:59:59.999999-12:00"},
        {"field": "fields.date", "is": "9999-12-31"},
        {"field": "updated_at", "at_least": {"days_ago": 0}},
        {"field": "fields.date", "is_not": {"days_ago": 3650}},
        {"field": "paid_expiry", "at_most": {"days_ago": -3650}},
        {"field": "joined_at", "anniversary": -60},
        {"field": "fields.date", "anniversary": 60},
        {"field": "paid_expiry", "exists": False},
        {"field": "status", "is": "Active"},
        {"field": "import_id", "in": [1, 2**53 - 1]},
        {"field": "fields.number", "is": -1e300},
    ],
)
def test_filter_at_the_limits_of_the_grammar_is_accepted(filter_: object) -> None:
    assert list(grammar.parse_filter(filter_, FILTER_NAMES).comparisons())


def test_oversized_filter_is_rejected_without_being_parsed_completely() -> None:
    class CountingDict(dict[str, Any]):
        lookup_count = 0

        def __contains__(self, key: object) -> bool:
            CountingDict.lookup_count += key == "field"
            return super().__contains__(key)

    nested_filter = CountingDict(ADA_FILTER)
    for _ in range(3):
        nested_filter = CountingDict({"any": [nested_filter] * 50})
    with pytest.raises(DomainError, match="exceeds the limit of"):
        grammar.parse_filter(nested_filter, FILTER_NAMES)
    assert CountingDict.lookup_count < 100
