from collections.abc import Callable

import pytest

from tests.importing import Importing
from tests.stack import Owner, Stack


@pytest.fixture(scope="session")
def importing(make_lasting_stack: Callable[[str], Stack]) -> Importing:
    """A stack without a worker: the tests themselves work on the jobs."""
    return Importing(make_lasting_stack("consent"))


@pytest.fixture
def owner(importing: Importing) -> Owner:
    return importing.stack.new_owner()


@pytest.fixture
def list_id(importing: Importing, owner: Owner) -> int:
    return importing.new_list(owner)
