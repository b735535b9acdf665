from collections.abc import Callable

import pytest

from devstack.harness.stack import Stack
from tests.support.imports.importing import Importing


@pytest.fixture(scope="session")
def importing(make_lasting_stack: Callable[[str], Stack]) -> Importing:
    """A stack without a worker: the tests themselves work on the jobs."""
    return Importing(make_lasting_stack("imports"))
