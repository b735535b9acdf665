from typing import Any

import pytest

from devstack.sandbox.stripe.stripe_forms import decode
from devstack.sandbox.stripe.stripe_problems import StripeProblem


@pytest.mark.parametrize(
    ("encoded", "given"),
    [
        ("a=1&b=", {"a": "1", "b": ""}),
        ("a[b][c]=1&a[b][d]=2", {"a": {"b": {"c": "1", "d": "2"}}}),
        ("a[1]=y&a[0]=x&a[10]=z", {"a": ["x", "y", "z"]}),
        ("a[]=x&a[]=y", {"a": ["x", "y"]}),
        ("a%5B0%5D%5Bb%5D=1%20%26", {"a": [{"b": "1 &"}]}),
    ],
)
def test_forms_with_brackets_are_read(encoded: str, given: dict[str, Any]) -> None:
    assert decode(encoded) == given


@pytest.mark.parametrize("encoded", ["a[=1", "a]b=1", "a=1&a[b]=2", "[a]=1"])
def test_forms_that_make_no_sense_are_refused(encoded: str) -> None:
    with pytest.raises(StripeProblem):
        decode(encoded)
