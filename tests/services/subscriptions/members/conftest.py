from collections.abc import Iterator

import pytest

from devstack.harness.stack import Owner, Stack
from tests.support.lists.acting import Acting, Person
from tests.support.lists.racing import deadlocks


@pytest.fixture
def lists(acting: Acting, owner: Owner) -> list[int]:
    """Two of one owner's."""
    return [acting.new_list(owner, confirm_required=False, challenge=False) for _ in range(2)]


@pytest.fixture
def person(acting: Acting) -> Person:
    return acting.new_person(with_login=True)


@pytest.fixture(autouse=True)
def _no_deadlock(stack: Stack) -> Iterator[None]:
    """Postgres breaks a deadlock after a second, and counts it."""
    before = deadlocks(stack)
    yield
    assert deadlocks(stack) == before
