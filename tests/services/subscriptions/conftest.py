from collections.abc import Callable

import pytest

from tests.importing import Importing
from tests.stack import Stack


@pytest.fixture(scope="session")
def importing(make_lasting_stack: Callable[[str], Stack]) -> Importing:
    """A stack without a worker: the tests themselves work on the jobs."""
    return Importing(make_lasting_stack("imports"))
