"""Stripe's form encoding: a name in brackets is one inside of an object."""

import re
from typing import Any
from urllib.parse import parse_qsl

from devstack.sandbox.stripe.stripe_problems import StripeProblem

_NAME = re.compile(r"([^\[\]]+)((?:\[[^\[\]]*\])*)\Z")
_MAX_FIELDS = 200

Params = dict[str, Any]


def decode(encoded: str) -> Params:
    """``a[0][b]=1`` as ``{"a": [{"b": "1"}]}``; all values are text."""
    given: Params = {}
    for name, value in parse_qsl(encoded, keep_blank_values=True, max_num_fields=_MAX_FIELDS):
        found = _NAME.match(name)
        if found is None:
            raise StripeProblem(f"Invalid name of a parameter: {name}", param=name)
        *above, last = [found[1], *re.findall(r"\[([^\[\]]*)\]", found[2])]
        into = given
        for each in above:
            into = into.setdefault(each, {})
            if not isinstance(into, dict):
                raise StripeProblem("A parameter is both a value and an object.", param=found[1])
        # `expand[]=a&expand[]=b` names no places, so they are numbered.
        into[last or str(len(into))] = value
    return {name: _listed(value) for name, value in given.items()}


def _listed(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    inside = {name: _listed(each) for name, each in value.items()}
    if inside and all(name.isdigit() for name in inside):
        return [inside[name] for name in sorted(inside, key=int)]
    return inside
