from collections.abc import Callable

import pytest

from devstack.harness.stack import Owner, Stack
from tests.support.imports.importing import Importing


@pytest.fixture(scope="session")
def quiet(make_lasting_stack: Callable[[str], Stack]) -> Importing:
    """A stack without a worker: the tests themselves work on the jobs."""
    return Importing(make_lasting_stack("erasures"))


@pytest.fixture
def keeper(quiet: Importing) -> Owner:
    """An owner of lists that the erased person is on."""
    return quiet.stack.new_owner()
