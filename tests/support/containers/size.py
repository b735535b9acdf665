"""Decides which container tests run: none by default, and all in `make containers`."""

import os

import pytest

_SIZE = os.environ.get("PRESSROOM_CONTAINERS", "")
WANTED = bool(_SIZE)
WANTED_IN_FULL = pytest.mark.skipif(_SIZE != "full", reason="`make containers` runs it")
