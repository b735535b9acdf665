import pytest

from tests.support.imports.importing import Importing
from tests.support.lists.bulk_actions import BulkActions


@pytest.fixture
def bulk_actions(importing: Importing) -> BulkActions:
    """Bulk actions on the list of a new owner."""
    owner = importing.stack.new_owner()
    return BulkActions(importing, owner, importing.new_list(owner))
