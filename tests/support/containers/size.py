"""How much of the containers' tests is run: nothing by default, `make containers` runs all."""

import os

import pytest

_ASKED = os.environ.get("PRESSROOM_CONTAINERS", "")
WANTED = bool(_ASKED)
WANTED_IN_FULL = pytest.mark.skipif(_ASKED != "full", reason="`make containers` runs it")
