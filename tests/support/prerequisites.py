"""What a test needs from its machine, beyond what pip installs."""

import os
from typing import NoReturn

import pytest


def pass_over(missing: str) -> NoReturn:
    """Skip the test that lacks this, and say so at the run's end; fail it where CI promises it."""
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing, allow_module_level=True)
