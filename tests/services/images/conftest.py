from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from services.images import ConverterProcess


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    # The blurhash package calls what Pillow 14 will drop; the pinned Pillow 13 still has it.
    quiet = pytest.mark.filterwarnings("ignore:Image.Image.getdata:DeprecationWarning")
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(quiet)


@pytest.fixture(scope="session")
def converter() -> Iterator[ConverterProcess]:
    with ConverterProcess() as process:
        yield process
