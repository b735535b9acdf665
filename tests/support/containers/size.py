"""Decides which container tests run: none by default, and all in `make containers`."""

import os

import pytest

_SIZE = os.environ.get("PRESSROOM_CONTAINERS", "")
CONTAINERS_ENABLED = bool(_SIZE)
FULL_SIZE_ONLY = pytest.mark.skipif(_SIZE != "full", reason="`make containers` runs it")
