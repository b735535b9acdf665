from collections.abc import Callable

import pytest

from devstack.harness.stack import Stack
from tests.support.imports.importing import ImportRunner
from tests.support.lists.bulk_actions import BulkActions


@pytest.fixture(scope="session")
def importing(make_lasting_stack: Callable[[str], Stack]) -> ImportRunner:
    """A stack for imports without workers, because the tests run import jobs themselves."""
    return ImportRunner(make_lasting_stack("imports"))


@pytest.fixture
def bulk_actions(importing: ImportRunner) -> BulkActions:
    """Helpers that run bulk actions on an empty mailing list of a new owner."""
    owner = importing.stack.create_owner()
    return BulkActions(importing, owner, importing.new_list(owner))
