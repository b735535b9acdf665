from collections.abc import Callable

import pytest

from tests.importing import Importing
from tests.services.subscriptions.bulk_actions.bulk_actions import BulkActions
from tests.stack import Owner, Stack


@pytest.fixture(scope="session")
def bulk_stack(make_lasting_stack: Callable[[str], Stack]) -> Stack:
    """A stack without a worker: the tests themselves work on the jobs."""
    return make_lasting_stack("bulk-actions")


@pytest.fixture
def bulk(bulk_stack: Stack) -> BulkActions:
    """A new owner and their list."""
    owner: Owner = bulk_stack.new_owner()
    importing = Importing(bulk_stack)
    return BulkActions(importing, owner, importing.new_list(owner))
