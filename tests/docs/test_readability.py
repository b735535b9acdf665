"""Tests that the product's code keeps the rules for names and order in CONTRIBUTING.md."""

import pytest

from benchmarks.code_metrics.product_modules import ROOT, Module, read_modules
from benchmarks.code_metrics.readability import find_places

pytestmark = pytest.mark.tier("check")

# Keys of `FINDERS`. `make house` explains each figure.
FORBIDDEN = ("packed", "vague", "orphans", "loggers", "attributes", "leaning")


@pytest.fixture(scope="module")
def product() -> list[Module]:
    return read_modules(ROOT)


@pytest.mark.parametrize("figure", FORBIDDEN)
def test_product_code_breaks_no_readability_rule(figure: str, product: list[Module]) -> None:
    assert [str(place) for place in find_places(figure, product)] == []
