from collections.abc import Callable

import pytest

from devstack.harness.stack import Owner, Stack
from tests.support.imports.importing import Importing


@pytest.fixture(scope="session")
def imports_without_workers(make_lasting_stack: Callable[[str], Stack]) -> Importing:
    """Imports into a stack without workers. The tests run the jobs."""
    return Importing(make_lasting_stack("erasures"))


@pytest.fixture
def list_owner(imports_without_workers: Importing) -> Owner:
    """The owner of the lists whose member is erased."""
    return imports_without_workers.stack.new_owner()
