import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.stack.open_checkout import ORDINARY_ID, Checkout, open_checkout
from tests.support.stack.ordinary_user import OrdinaryUser


@pytest.fixture(scope="session")
def checkout() -> Iterator[Checkout]:
    """A copy of Pressroom's modules and packages that users other than root can read."""
    # Don't put the copy below pytest's own directory, because other users can't enter that
    # directory.
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        Path(directory).chmod(0o755)
        yield open_checkout(Path(directory))


@pytest.fixture
def ordinary_user(checkout: Checkout) -> Iterator[OrdinaryUser]:
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        shutil.chown(directory, ORDINARY_ID, ORDINARY_ID)
        yield OrdinaryUser(Path(directory), checkout)
