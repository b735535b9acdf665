import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.devstack.supervisor.ordinary_user import OrdinaryUser, own


@pytest.fixture
def ordinary_user() -> Iterator[OrdinaryUser]:
    # Not below pytest's own directory, which is closed to others.
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        yield own(Path(directory))
