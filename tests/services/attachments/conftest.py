from collections.abc import Iterator

import pytest

from services.attachments.isolation.converter import ConverterProcess


@pytest.fixture(scope="session")
def converter() -> Iterator[ConverterProcess]:
    with ConverterProcess() as process:
        yield process
