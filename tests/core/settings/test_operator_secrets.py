"""Tests that secrets of operators' tools must be long, because guesses aren't rate limited."""

import pytest

from core.settings import SettingsError
from tests.support.stack.given_settings import Load


@pytest.mark.parametrize("name", ["METRICS_TOKEN", "FLOWER_PASSWORD"])
def test_operator_secret_shorter_than_20_characters_is_rejected_without_showing_it(
    load: Load, name: str
) -> None:
    with pytest.raises(SettingsError, match=f"PRESSROOM_{name}: .*20 characters") as caught:
        load(**{name: "nineteen characters"})
    assert "nineteen" not in str(caught.value)
    assert getattr(load(**{name: "twenty characters..."}), name.lower()) is not None
