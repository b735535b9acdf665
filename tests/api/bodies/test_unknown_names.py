"""Tests of the search for undocumented property names in JSON request bodies."""

import tracemalloc
from itertools import islice

import pytest

from api.bodies.unknown_names import MAX_LISTED_NAMES, find_unknown_names
from api.schemas.segments import FILTER_SCHEMAS

FILTER_SCHEMA = {"$ref": "#/components/schemas/MemberFilter"}
MAX_EXTRA_MEMORY_BYTES = 100_000


@pytest.mark.parametrize(("depth", "count"), [(0, MAX_LISTED_NAMES), (4, 1), (200, 0)])
def test_search_for_unknown_json_keys_uses_bounded_memory(depth: int, count: int) -> None:
    value: object = {f"name{number}": 1 for number in range(180_000)}
    for _ in range(depth):
        value = {"not": value}
    tracemalloc.start()
    try:
        places = [
            *islice(
                find_unknown_names(FILTER_SCHEMA, value, ("body",), FILTER_SCHEMAS),
                MAX_LISTED_NAMES,
            )
        ]
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < MAX_EXTRA_MEMORY_BYTES
    # If the schema allows several forms with ``anyOf``, the search reports unknown names only for
    # the form with the fewest unknown names. The search ignores the names in JSON objects that are
    # nested too deeply.
    assert len(places) == count


def test_unknown_json_key_is_found_in_filter_of_maximum_depth() -> None:
    condition = {"field": "name", "is": "Ada", "case": 1}
    value = {"all": [{"any": [{"all": [{"any": [condition]}]}]}]}
    places = [*find_unknown_names(FILTER_SCHEMA, value, ("body", "filter"), FILTER_SCHEMAS)]
    filter_path = ("all", 0, "any", 0, "all", 0, "any", 0)
    assert places == [("body", "filter", *filter_path, "case")]


def test_items_beyond_the_maximum_length_of_a_list_are_not_searched() -> None:
    conditions = [{"field": "name", "is": "Ada"}] * 50 + [{"field": "name", "is": "Ada", "case": 1}]
    for value, count in (({"all": conditions}, 0), ({"all": conditions[1:]}, 1)):
        assert len([*find_unknown_names(FILTER_SCHEMA, value, ("body",), FILTER_SCHEMAS)]) == count
