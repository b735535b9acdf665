from collections.abc import Iterator

import pytest

from devstack.harness.stack import Owner
from tests.support.imports.importing import Importing, new_addresses
from tests.support.lists.racing import deadlocks


@pytest.fixture
def owner(importing: Importing) -> Owner:
    return importing.stack.new_owner()


@pytest.fixture
def list_id(importing: Importing, owner: Owner) -> int:
    return importing.new_list(owner)


@pytest.fixture
def people() -> list[str]:
    return new_addresses(12)


@pytest.fixture
def _no_deadlock(importing: Importing) -> Iterator[None]:
    before = deadlocks(importing.stack)
    yield
    assert deadlocks(importing.stack) == before
