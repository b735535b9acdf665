import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.stack.open_checkout import ORDINARY_ID, Checkout, open_checkout
from tests.support.stack.ordinary_user import OrdinaryUser


@pytest.fixture(scope="session")
def checkout() -> Iterator[Checkout]:
    """Our modules and packages where other users than root can read them."""
    # Not below pytest's own directory, which is closed to others.
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        Path(directory).chmod(0o755)
        yield open_checkout(Path(directory))


@pytest.fixture
def ordinary_user(checkout: Checkout) -> Iterator[OrdinaryUser]:
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        shutil.chown(directory, ORDINARY_ID, ORDINARY_ID)
        yield OrdinaryUser(Path(directory), checkout)
