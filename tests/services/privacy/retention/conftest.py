from collections.abc import Callable

import pytest

from devstack.harness.stack import Stack
from tests.support.people.aged_rows import AgedRows


@pytest.fixture(scope="session")
def bare(make_lasting_stack: Callable[[str], Stack]) -> Stack:
    """A stack without processes, in which nothing is purged but by the test."""
    return make_lasting_stack("retention")


@pytest.fixture(scope="session")
def rows(bare: Stack) -> AgedRows:
    return AgedRows(bare)
