from collections.abc import Callable

import pytest

from devstack.harness.stack import Stack
from tests.support.people.aged_rows import AgedRows


@pytest.fixture(scope="session")
def retention_stack(make_lasting_stack: Callable[[str], Stack]) -> Stack:
    """A stack without workers, so that only the tests purge expired rows."""
    return make_lasting_stack("retention")


@pytest.fixture(scope="session")
def aged_rows(retention_stack: Stack) -> AgedRows:
    return AgedRows(retention_stack)
