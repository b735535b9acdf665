from collections.abc import Iterator

import pytest

from services.media.isolation.converter import ConverterProcess


@pytest.fixture(scope="session")
def converter() -> Iterator[ConverterProcess]:
    with ConverterProcess() as process:
        yield process
