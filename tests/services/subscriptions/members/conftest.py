from collections.abc import Iterator

import pytest

from devstack.harness.stack import Owner, Stack
from tests.support.lists.acting import ListActions, Person
from tests.support.lists.racing import no_deadlock


@pytest.fixture
def list_ids(acting: ListActions, owner: Owner) -> list[int]:
    """The ids of two lists of the same owner. Anyone can join the lists without confirmation."""
    return [acting.new_list(owner, confirm_required=False, challenge=False) for _ in range(2)]


@pytest.fixture
def person_with_login(acting: ListActions) -> Person:
    return acting.new_person(with_login=True)


@pytest.fixture(autouse=True)
def _require_no_deadlock(stack: Stack) -> Iterator[None]:
    with no_deadlock(stack):
        yield
