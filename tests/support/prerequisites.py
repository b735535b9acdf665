"""Skips tests that need a program which is not installed on this machine."""

import os
from typing import NoReturn

import pytest


def skip_or_fail(missing: str) -> NoReturn:
    """Skip the test, or fail it in CI, where every prerequisite must be installed."""
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing, allow_module_level=True)
