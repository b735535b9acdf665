from collections.abc import Callable

import pytest

from tests.importing import Importing
from tests.stack import Owner, Stack


@pytest.fixture(scope="session")
def quiet(make_lasting_stack: Callable[[str], Stack]) -> Importing:
    """A stack without a worker: the tests themselves work on the jobs."""
    return Importing(make_lasting_stack("erasures"))


@pytest.fixture
def keeper(quiet: Importing) -> Owner:
    """An owner of lists that the erased person is on."""
    return quiet.stack.new_owner()
