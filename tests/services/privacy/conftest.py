from collections.abc import Callable

import pytest

from devstack.harness.stack import Owner, Stack
from tests.support.imports.importing import ImportRunner


@pytest.fixture(scope="session")
def imports_without_workers(make_lasting_stack: Callable[[str], Stack]) -> ImportRunner:
    """A stack for imports without workers, because the tests run import jobs themselves."""
    return ImportRunner(make_lasting_stack("erasures"))


@pytest.fixture
def list_owner(imports_without_workers: ImportRunner) -> Owner:
    """A new owner of mailing lists whose members the tests erase."""
    return imports_without_workers.stack.create_owner()
