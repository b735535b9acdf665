import pytest

from tests.support.imports.importing import Importing
from tests.support.lists.bulk_actions import BulkActions


@pytest.fixture
def bulk_actions(importing: Importing) -> BulkActions:
    """A new owner with an empty mailing list, and helpers that run bulk actions on its members."""
    owner = importing.stack.create_owner()
    return BulkActions(importing, owner, importing.new_list(owner))
