from collections.abc import Callable

import pytest

from devstack.harness.stack import Stack
from tests.support.imports.importing import Importing


@pytest.fixture(scope="session")
def importing(make_lasting_stack: Callable[[str], Stack]) -> Importing:
    """A stack for imports without workers, because the tests run import jobs themselves."""
    return Importing(make_lasting_stack("imports"))
