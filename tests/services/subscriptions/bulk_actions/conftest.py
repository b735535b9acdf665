import pytest

from tests.support.imports.importing import Importing
from tests.support.lists.bulk_actions import BulkActions


@pytest.fixture
def bulk(importing: Importing) -> BulkActions:
    """A new owner and their list."""
    owner = importing.stack.new_owner()
    return BulkActions(importing, owner, importing.new_list(owner))
