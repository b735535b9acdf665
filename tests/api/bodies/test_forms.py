import pytest

from api.bodies.forms import boolean_of


@pytest.mark.parametrize(
    ("value", "meant"),
    [("true", True), ("TRUE", True), ("1", True), ("false", False), ("False", False), ("0", False)],
)
def test_a_text_says_true_or_false_in_two_words_each(value: str, meant: bool) -> None:
    assert boolean_of(value) is meant


@pytest.mark.parametrize("value", ["", "yes", "on", "2", " true", "tru\u0435", None])
def test_any_other_word_says_neither(value: str | None) -> None:
    assert boolean_of(value) is None
