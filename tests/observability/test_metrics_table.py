"""The table of metrics has all that there are, and nothing else."""

import pytest

from tests.observability.known_metrics import documented, registered

pytestmark = pytest.mark.check


def test_each_metric_is_in_the_table_with_its_type_and_labels() -> None:
    assert registered() - set(documented()) == set()


def test_the_table_names_no_metric_that_is_not_there() -> None:
    assert set(documented()) - registered() == set()


def test_each_metric_is_in_the_table_once() -> None:
    names = [each.name for each in documented()]
    assert len(names) == len(set(names))


def test_no_label_names_a_person_a_list_or_an_address() -> None:
    # Labels with few values, each known to be so.
    bounded = {
        *("method", "route", "status", "code", "bulkhead", "reserve", "outcome", "type"),
        *("lane", "kind", "cause", "provider", "server", "window", "model", "direction"),
        *("state", "currency", "action", "upkeep", "table"),
    }
    assert {label for each in registered() for label in each.labels} <= bounded
